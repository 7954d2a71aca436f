"""Hooks of modules: which lines register them, in how many steps, and how many of them are still there.

A hook is known by the dictionary that it was put into (its module's, held weakly) and its number in it, so that it counts as
gone however it was removed.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

from tensonde.program.frames import foreign_frames, library_of, user_place
from tensonde.program.lines import CodeLine, line_of

KINDS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
MOST_LINES = 64
MOST = 512
"""Hooks that are remembered of one line."""


class Line:
    def __init__(self, library: str) -> None:
        self.library = library
        """Whose code registers; empty for the user's own."""
        self.count = 0
        self.noted: list[tuple[weakref.ref[Any], weakref.ref[Any], int, int]] = []
        """The module, its dictionary of hooks, the number in it, the step."""


class Hooks:
    def __init__(self) -> None:
        self.lines: dict[tuple[CodeLine, str], Line] = {}

    def registered(self, kind: str, module: Any, handle: Any, step: int, frame: FrameType) -> CodeLine | None:
        """`frame` calls the method that registers. Returns the user's line."""
        place = user_place(frame)
        if place is None or not hasattr(handle, "hooks_dict_ref"):
            return place
        known = self.lines.get((place, kind))
        if known is None:
            if len(self.lines) >= MOST_LINES:
                return place
            known = self.lines[(place, kind)] = Line(library_of(next(foreign_frames(frame), None)))
        known.count += 1
        if len(known.noted) < MOST:
            known.noted.append((weakref.ref(module), handle.hooks_dict_ref, handle.id, step))
        return place

    def facts(self, names: dict[int, str]) -> list[dict[str, Any]]:
        """Of each line that registered in several steps: the module with most hooks of it, as it is now."""
        found = []
        for (place, kind), known in self.lines.items():
            if len({step for *_, step in known.noted}) < 2:
                continue
            alive: dict[int, tuple[Any, list[int]]] = {}
            for module_ref, hooks_ref, number, step in known.noted:
                module, hooks = module_ref(), hooks_ref()
                if module is not None and hooks is not None and number in hooks:
                    alive.setdefault(id(module), (module, []))[1].append(step)
            if not alive:
                continue
            module, steps = max(alive.values(), key=lambda one: len(one[1]))
            found.append(
                {
                    "kind": kind,
                    "line": line_of(place),
                    "library": known.library,
                    "registered": known.count,
                    "module": names.get(id(module)) or type(module).__name__,
                    "alive": len(steps),
                    "steps": len(set(steps)),
                    "first_step": min(steps),
                    "last_step": max(steps),
                }
            )
        return found[:16]


HOOKS = Hooks()
