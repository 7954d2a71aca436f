"""What goes on inside of running modules: parts that run without gradients, modules that are made anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torch import nn

from tensonde.adapters.made_inside import MadeInside
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
        self.made = MadeInside(lambda module: next(module.parameters(), None) is not None)

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
        if self.state.phase is not Phase.BACKWARD:
            self.made.note(module, self.state.stack[-1].name, place, self.state.step)
