"""The user's renaming map: a YAML file of names of A and names of B."""

from __future__ import annotations

from pathlib import Path

import yaml  # type: ignore[import-untyped]

from tensonde.errors import UsageError


def read_map(path: Path) -> dict[str, str]:
    """Raises UsageError where it is no map of names to names."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        raise UsageError(f"the map {path} cannot be read: {reason}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(x, str | int) for pair in content.items() for x in pair):
        raise UsageError(
            f"the map {path} must have lines such as `encoder.0: layers.0`, one name of A and one of B each."
        )
    return {str(mine): str(theirs) for mine, theirs in content.items()}
