"""Optimizers that one line makes again and again for the same parameters: what each remembers is lost with it."""

from __future__ import annotations

from typing import Any

import torch

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.program import queries
from tensonde.program.lines import CodeLine, line_at, line_of

MOST = 64


class Renewals:
    def __init__(self) -> None:
        self._tallies: dict[tuple[CodeLine, int], dict[str, Any]] = {}
        """By the line that makes it and its first parameter: how many optimizers, how many steps they all took."""
        self._of: tuple[int, dict[str, Any]] | None = None
        """The optimizer that stepped last, by number, and its tally: one comparison a step as a rule."""

    def stepped(self, optimizer: torch.optim.Optimizer, number: int, first: bool, steps: int = 1) -> None:
        """It has made so many steps. `first`: it had never stepped before."""
        if self._of is None or self._of[0] != number:
            place = KNOWN.made.place(optimizer)
            parameter = next((p for group in optimizer.param_groups for p in group["params"]), None)
            if place is None or parameter is None or len(self._tallies) >= MOST:
                return
            tally = self._tallies.setdefault(
                (place, id(parameter)), {"type": type(optimizer).__name__, "count": 0, "steps": 0, "remembers": False}
            )
            tally["count"] += first
            self._of = number, tally
        tally = self._of[1]
        tally["steps"] += steps
        if first:
            tally["remembers"] |= any(
                isinstance(value, torch.Tensor) and value.numel() > 1
                for state in list(optimizer.state.values())[:4]
                for value in state.values()
            )

    def facts(self) -> list[dict[str, Any]]:
        """Of lines that made more than one."""
        return [{**tally, "line": _line(place)} for (place, _), tally in self._tallies.items() if tally["count"] > 1]


def _line(place: CodeLine) -> dict[str, Any] | None:
    """Where it is made; of a function that does nothing but return one, its only call: the function is right, calling
    it in every step is not."""
    path, number = place[0].co_filename, place[1]
    call = queries.only_call(path, place[0].co_name) if line_at(path, number)["code"].startswith("return ") else None
    return line_at(path, call) if call else line_of(place)
