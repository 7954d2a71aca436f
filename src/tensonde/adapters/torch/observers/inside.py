"""What goes on inside of running modules: parts that run without gradients, modules that are made anew."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from torch import nn

from tensonde.model.moment import Phase
from tensonde.program import queries
from tensonde.program.frames import user_place
from tensonde.program.lines import line_at, line_of

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.record import ModuleRecord
    from tensonde.adapters.torch.run.state import RunState


class Inside:
    def __init__(self, state: RunState) -> None:
        self.state = state
        self.no_grad_calls: dict[str, dict[str, Any]] = {}
        self._made: dict[tuple[str, str, int], dict[str, Any]] = {}

    def without_grad(self, entry: ModuleRecord) -> None:
        """In the first step, a part of a root runs without gradients though the root runs with them."""
        if entry.name in self.no_grad_calls or len(self.no_grad_calls) >= 256 or self.state.phase is Phase.BACKWARD:
            return
        frame = sys._getframe(2)
        place = user_place(frame)
        kind, number = "no_grad", None
        while frame is not None:
            if frame.f_code.co_filename.endswith("checkpoint.py") and frame.f_code.co_name == "forward":
                kind = "reentrant checkpoint"
                place = user_place(frame)
                break
            frame = frame.f_back  # type: ignore[assignment]
        if kind == "no_grad" and place is not None:
            number = queries.no_grad_line(place[0].co_filename, place[1])
        self.no_grad_calls[entry.name] = {
            "kind": kind,
            "line": line_at(place[0].co_filename, number) if place is not None and number else line_of(place),
        }

    def module_made(self, module: nn.Module, place: Any) -> None:
        """A module is made while another one runs."""
        if place is None or len(self._made) >= 64 or self.state.phase is Phase.BACKWARD:
            return
        parent = self.state.stack[-1].name
        key = (parent, type(module).__name__, place[1])
        found = self._made.setdefault(
            key, {"count": 0, "last_step": -1, "steps": 0, "line": line_of(place), "parameters": False}
        )
        found["count"] += 1
        if found["last_step"] != self.state.step:
            found["last_step"] = self.state.step
            found["steps"] += 1
        found["ref"] = weakref.ref(module)

    def made(self) -> list[dict[str, Any]]:
        found = []
        for (parent, kind, _), made in self._made.items():
            module = made["ref"]() if "ref" in made else None
            made["parameters"] |= module is not None and next(module.parameters(), None) is not None
            found.append({"parent": parent, "type": kind, **{k: v for k, v in made.items() if k != "ref"}})
        return found
