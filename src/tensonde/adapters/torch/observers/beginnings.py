"""What a rank does by itself before and while it trains, beside collectives: states that it loads, parameters that are sent to all ranks before the first
step, and the statement that changes gradients after the backward pass. Ranks are compared by it afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.tensors import values_of
from tensonde.program.gradients import rewrite_between
from tensonde.program.lines import CodeLine, Json, line_at, line_of

MOST = 32
MOST_SENT = 8192


class Beginnings:
    """One per process: much of it happens before there is a session."""

    def __init__(self) -> None:
        self._loads: dict[tuple[str, CodeLine], int] = {}
        self._sent: dict[tuple[int, int, torch.dtype], CodeLine | None] = {}

    def loaded(self, what: str, place: CodeLine | None) -> None:
        """`what` is `weights` or `optimizer`."""
        if place is not None and ((what, place) in self._loads or len(self._loads) < MOST):
            self._loads[what, place] = self._loads.get((what, place), 0) + 1

    def sent(self, tensor: Any, place: CodeLine | None) -> None:
        """A tensor is sent to all ranks. It is known again by its memory: a parameter's `.data` is another object."""
        try:
            held = values_of(tensor) if isinstance(tensor, Tensor) else None
            if held is not None and held.numel() and len(self._sent) < MOST_SENT:
                self._sent[held.data_ptr(), held.numel(), held.dtype] = place
        except Exception:  # there is no session yet whose guard could say so
            self._sent.clear()

    def facts(self, parameters: Iterable[tuple[str, Tensor]], optimizers: list[dict[str, Any]]) -> dict[str, Any]:
        sent = [name for name, parameter in parameters if self._sent and self._is_sent(parameter)]
        return {
            "loads": [
                {"what": what, "count": count, "line": line_of(place)} for (what, place), count in self._loads.items()
            ],
            "sent": sent[:256],
            "rewrite": next((found for one in optimizers if (found := _rewrite(one)) is not None), None),
        }

    def _is_sent(self, parameter: Tensor) -> bool:
        held = values_of(parameter)
        return held is not None and (held.data_ptr(), held.numel(), held.dtype) in self._sent


def _rewrite(optimizer: dict[str, Any]) -> Json | None:
    backward, step = optimizer.get("backward_line"), optimizer.get("step_line")
    if not backward or not step or backward["file"] != step["file"]:
        return None
    found = rewrite_between(step["file"], backward["line"], step["line"])
    return line_at(step["file"], found) if found else None


BEGINNINGS = Beginnings()
