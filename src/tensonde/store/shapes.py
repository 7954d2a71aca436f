"""What kinds of value the documents of a recording hold under the keys that are read from them.

A key that holds another kind is left out, and told; keys that are not listed pass as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Shape = Mapping[str, Any]
"""By key ("*": any other): a type, several, the shape of an object, or a list of one shape that all items have."""

_NUMBER = (int, float)
_LINE: Shape = {"file": str, "line": int, "code": str}
MANIFEST_SHAPE: Shape = {"id": str, "script": str, "argv": list, "started": str, "exit_code": int}
SESSION_SHAPE: Shape = {
    "rank": int, "steps": int, "started": str, "closed": str, "cwd": str, "script": str, "framework": str, "framework_version": str,
    "device": str, "python": str, "host": str, "pid": int, "process": {"pid": int, "boot": str, "started": str},
    "exit": {"code": int, "exception": {"type": str, "message": str, "source": _LINE, "module": str, "step": int, "phase": str}},
    "options": {"watches": list, "budget": _NUMBER},
    "watchpoints": [{"id": int, "sites": str, "condition": str, "action": str, "origin": str}],
    "overhead": {"ratio": _NUMBER, "budget": _NUMBER, "steps_measured": int, "ms_per_step": _NUMBER, "levels": {"*": int}},
    "coverage": {"modules": int, "modules_watched": int, "parameters": int, "not_watched": {"*": str}},
}  # fmt: skip
_LARGEST = 1 << 62


def shaped(
    document: Mapping[str, Any], shape: Shape, problem: Callable[[str], None], where: str = ""
) -> dict[str, Any]:
    """`document` without the keys whose values are of another kind than `shape` says; null is always possible."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        wanted = shape.get(key, shape.get("*"))
        if wanted is None or value is None:
            found[key] = value
        elif isinstance(wanted, Mapping) and isinstance(value, dict):
            found[key] = shaped(value, wanted, problem, f"{where}{key}.")
        elif isinstance(wanted, list) and isinstance(value, list) and all(isinstance(item, dict) for item in value):
            items = [shaped(item, wanted[0], problem, f"{where}{key}[{k}].") for k, item in enumerate(value)]
            found[key] = [item for item in items if all(item.get(name) is not None for name in wanted[0])]
            if len(found[key]) < len(items):
                problem(
                    f"{where}{key} has {len(items) - len(found[key])} entries that are not whole, which are left out"
                )
        elif not isinstance(wanted, Mapping | list) and _fits(value, wanted):
            found[key] = value
        else:
            problem(f"{where}{key} is {repr(value)[:40]}, which is left out")
    return found


def _fits(value: Any, wanted: Any) -> bool:
    whole = isinstance(value, int)
    return isinstance(value, wanted) and not isinstance(value, bool) and not (whole and abs(value) > _LARGEST)
