"""Run options from `tensonde.toml` in the working directory and from the command line, which wins."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, cast

from tensonde.errors import UsageError
from tensonde.model.watchpoint import Action

FILE = "tensonde.toml"
_KEYS = ("budget", "on_hit", "recommended", "watch")

Watch = tuple[str, str, Action]


def from_file(path: Path) -> dict[str, Any]:
    """The parsed file, with its keys checked; empty where there is none."""
    if not path.exists():
        return {}
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise UsageError(f"{path} cannot be read: {problem}.") from None
    for key in content:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it knows {', '.join(_KEYS)}."
            raise UsageError(f"{path} has an unknown key {key!r}; {hint}")
    if content.get("on_hit", "report") not in ("report", "stop", "pause"):
        raise UsageError(f"{path}: on_hit is {content['on_hit']!r}; it may be report, stop or pause.")
    if not isinstance(content.get("recommended", True), bool):
        raise UsageError(f"{path}: recommended is {content['recommended']!r}; it may be true or false.")
    return content


def watches(given: tuple[str, ...], content: dict[str, Any], on_hit: Action) -> tuple[Watch, ...]:
    """Every watchpoint of the file, then of the command line, checked."""
    if not given and "watch" not in content:
        return ()
    from tensonde.watch.parse import entries, watchpoint  # with the language of conditions, which few runs need here

    listed = content.get("watch", [])
    if isinstance(listed, list):
        listed = [{"on_hit": on_hit, **entry} if isinstance(entry, dict) else entry for entry in listed]
    found: list[Watch] = [(point.sites, point.condition, point.action) for point in entries(listed, file=FILE)]
    for text in given:
        point = watchpoint(text, id=len(found) + 1, action=on_hit)
        found.append((point.sites, point.condition, point.action))
    return tuple(found)


def chosen_action(given: str | None, content: dict[str, Any]) -> Action:
    return cast(Action, given or content.get("on_hit", "report"))
