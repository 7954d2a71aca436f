"""How the path of a source file is shown."""

from __future__ import annotations

import os


def display_path(path: str) -> str:
    """Relative to the working directory where it is inside it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return path
    return path if relative.startswith("..") else relative
