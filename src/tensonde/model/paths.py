"""Source files: whose they are, and how their path is shown."""

from __future__ import annotations

import os
import sysconfig

_LIBRARIES = tuple(os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib"))
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def working_directory() -> str:
    """ "" where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def display_path(path: str) -> str:
    """Relative to the working directory where it is inside it."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive; a working directory that was removed
        return path
    return path if relative.startswith("..") else relative


def is_library(path: str) -> bool:
    """Whether a file is installed, and not the user's own program. Packages of the user's site, of the system's Python and
    of other environments on the path count, too, and compiled Cython, whose frames name a source that was left behind."""
    if path.endswith((".pyx", ".pxd")) and not os.path.exists(path):
        return True
    path = os.path.abspath(path)
    return path.startswith(_LIBRARIES) or any(name in path for name in _INSTALLED)
