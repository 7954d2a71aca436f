"""Learning rates that MindSpore computes from the number of the step, as its own schedules do. Computed here in plain numbers: asking the schedule would run ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindspore.nn.learning_rate_schedule import LearningRateSchedule


def is_schedule(rate: Any) -> bool:
    return isinstance(rate, LearningRateSchedule)


def rate_at(schedule: Any, step: int) -> float | None:
    """None: a schedule of the program's own, which only running it would tell."""
    formula = FORMULAS.get(type(schedule).__name__) if type(schedule).__module__.startswith("mindspore.") else None
    return float(formula(schedule, step)) if formula is not None else None


def _part(schedule: Any, step: int) -> float:
    part = float(step / schedule.decay_steps)
    return math.floor(part) if schedule.is_stair else part


def _natural(schedule: Any, step: int) -> float:
    at = step // schedule.decay_steps * schedule.decay_steps if schedule.is_stair else step
    return float(schedule.learning_rate * math.exp(-schedule.decay_rate * at))


def _cosine(schedule: Any, step: int) -> float:
    part = min(step, schedule.decay_steps) / schedule.decay_steps
    return float(schedule.min_lr + schedule.delta * (1.0 + math.cos(math.pi * part)))


def _polynomial(schedule: Any, step: int) -> float:
    length = schedule.decay_steps
    if schedule.update_decay_steps:
        length *= max(math.ceil(step / length), 1)
    left = 1.0 - min(step, length) / length
    return float(schedule.diff_learning_rate * left**schedule.power + schedule.end_learning_rate)


FORMULAS: dict[str, Callable[[Any, int], float]] = {
    "ExponentialDecayLR": lambda s, k: s.learning_rate * s.decay_rate ** _part(s, k),
    "InverseDecayLR": lambda s, k: s.learning_rate / (1 + s.decay_rate * _part(s, k)),
    "NaturalExpDecayLR": _natural,
    "CosineDecayLR": _cosine,
    "PolynomialDecayLR": _polynomial,
    "WarmUpLR": lambda s, k: s.learning_rate * min(k, s.warmup_steps) / s.warmup_steps,
}
