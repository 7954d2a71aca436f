"""Gradients that the program adds up itself, and does not clear after a step.

What an optimizer is given in one step is compared with what it was given in the step before, and with what the backward passes in between gave: where the
difference of the two is a multiple of that sum, and what is given is not, the gradients of all steps before are still there. A part of one parameter tells.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.tensors import is_parameter, values_of
from tensonde.program.frames import user_place
from tensonde.program.lines import CodeLine, line_of

SAMPLE = 1024
LOOKS = 8
ENOUGH = 4
"""Steps that must all tell the same."""
_CLOSE, _FAR = 1e-3, 0.05
"""Of the norm: what rounding may leave over, and what it cannot."""

Values = NDArray[np.float64]


@dataclass
class _Seen:
    looks: int = 0
    piled: int = 0
    given: Values | None = None
    place: CodeLine | None = None
    keeper: int = 0
    """The id of the parameter that holds the sum."""


class Piling:
    def __init__(self) -> None:
        self._sums: dict[int, Values] = {}
        """Of a parameter, by its id: what the backward passes since the last step gave."""
        self._seen: dict[int, _Seen] = {}

    def differentiated(self, weights: Sequence[Any], gradients: Sequence[Any]) -> None:
        """A backward pass gave these."""
        if not weights or (self._seen and all(seen.looks >= LOOKS for seen in self._seen.values())):
            return
        values = _sample(gradients[0])
        if values is not None:
            key = id(weights[0])
            self._sums[key] = values + self._sums[key] if key in self._sums else values

    def optimizer_steps(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """It is called with these. Only gradients that the program keeps in parameters of its own can pile up."""
        seen = self._seen.setdefault(KNOWN.number(optimizer), _Seen())
        held = next(iter(optimizer.parameters), None)
        came = self._sums.pop(id(held), None)
        if seen.looks >= LOOKS or not gradients or not is_parameter(gradients[0]):
            seen.looks, seen.given = LOOKS, None
            return
        before, seen.given = seen.given, _sample(gradients[0])
        kept, seen.keeper = seen.keeper == id(gradients[0]), id(gradients[0])
        seen.place = seen.place or user_place(sys._getframe(1))
        if before is None or came is None or seen.given is None or not kept or not before.any():
            return
        seen.looks += 1
        seen.piled += _left_over(seen.given - before, came) < _CLOSE and _left_over(seen.given, came) > _FAR

    def piles_up(self, number: int) -> bool:
        seen = self._seen.get(number)
        return seen is not None and seen.piled >= ENOUGH and seen.piled == seen.looks

    def line(self, number: int) -> dict[str, Any] | None:
        """The line that gives the optimizer what piles up."""
        return line_of(self._seen[number].place) if self.piles_up(number) else None


def _sample(gradient: Any) -> Values | None:
    values = values_of(gradient)
    return values.reshape(-1)[:SAMPLE].astype(np.float64) if values is not None else None


def _left_over(given: Values, came: Values) -> float:
    """What of `given` is no multiple of `came`, as a share of it."""
    square = float(came @ came)
    size = float(np.linalg.norm(given))
    if not square or not size:
        return 1.0
    return float(np.linalg.norm(given - (given @ came) / square * came)) / size
