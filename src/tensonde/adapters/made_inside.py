"""Modules that are made while another one runs, step after step: such a layer begins at random each time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tensonde.program.lines import CodeLine, line_of

MOST = 64


class MadeInside:
    def __init__(self, has_parameters: Callable[[Any], bool]) -> None:
        self._has_parameters = has_parameters
        self._made: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._last: dict[tuple[str, str, int], weakref.ref[Any]] = {}

    def note(self, module: Any, parent: str, place: CodeLine | None, step: int) -> None:
        """It is made just now, and has no parameters yet."""
        if place is None or len(self._made) >= MOST:
            return
        key = (parent, type(module).__name__, place[1])
        found = self._made.setdefault(
            key, {"count": 0, "last_step": -1, "steps": 0, "line": line_of(place), "parameters": False}
        )
        found["count"] += 1
        if found["last_step"] != step:
            found["last_step"] = step
            found["steps"] += 1
        self._last[key] = weakref.ref(module)

    def met(self, module: Any) -> None:
        """It is called for the first time; it may be gone after that."""
        for key, reference in self._last.items():
            if reference() is module:
                self._made[key]["parameters"] |= self._has_parameters(module)

    def facts(self) -> list[dict[str, Any]]:
        for module in [held for reference in self._last.values() if (held := reference()) is not None]:
            self.met(module)
        return [{"parent": parent, "type": kind, **made} for (parent, kind, _), made in self._made.items()]
