"""A moment is a position in time: step, phase, and the index of the call of that site within the step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    """What the training was doing. The numbers are stored in recordings: never renumber."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    step: int
    phase: Phase
    call: int = 0
