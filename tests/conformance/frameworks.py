"""The frameworks that the conformance suite runs on.

A framework brings seven small programs (`programs_<framework>.py`), which note by their own means what they compute: `kept.npz` holds
tensors by "STEP ADDRESS", RESULT the losses, weights and random numbers. The suite compares a recording with these notes, so the
programs must use the same names: a model with `first` (linear, 4 to 8), `act` (tanh) and `last` (linear, 8 to 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import programs_torch

from tensonde.adapters.adapter import Adapter
from tensonde.adapters.torch.adapter import ADAPTER as TORCH

NAMES = ("training", "not a number", "exception", "evaluation", "accumulation", "questions", "sabotage")


@dataclass(frozen=True)
class Framework:
    adapter: Adapter
    programs: dict[str, str]

    def line(self, program: str) -> int:
        """The line marked HERE."""
        return next(k for k, text in enumerate(self.programs[program].splitlines(), 1) if "# HERE" in text)


FRAMEWORKS = {"torch": Framework(TORCH, programs_torch.PROGRAMS)}
