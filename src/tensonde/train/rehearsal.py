"""`tensonde lr` inside the script: finds its schedulers, sees how often they are stepped, plays them through, and ends it.

The script runs until an optimizer is about to step for the second time. If a scheduler was stepped by then, it is
stepped at every batch; if not, once per epoch, whose length the data loader tells.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from tensonde.session.session import StopTraining
from tensonde.train.curve import Curve, check_schedule, parts_of, schedule_curve, stretched
from tensonde.train.loop import length

ENVIRONMENT = "TENSONDE_LR"
"""JSON: `file` for the result; `steps`, `epochs` and `steps_per_epoch` where the user said them."""


class Rehearsal:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.schedulers: list[Any] = []
        self.batches: int | None = wanted.get("steps_per_epoch")
        """Optimizer steps in an epoch, as far as is known."""
        self.taken: dict[int, int] = {}
        """Steps of each optimizer so far."""
        self.early: list[int] = []
        self.curves: dict[int, Curve] = {}
        """Played through before the first step."""
        self._observe()
        iterate = DataLoader.__iter__

        @functools.wraps(iterate)
        def counting(loader: Any) -> Any:
            if self.batches is None:
                self.batches = length(loader)
            return iterate(loader)

        DataLoader.__iter__ = counting
        register_optimizer_step_pre_hook(self._before_step)

    def _observe(self) -> None:
        """All schedulers, as they are made: those that are made of others do not call the base class's `__init__`."""

        def new(kind: Any, *args: Any, **kwargs: Any) -> Any:
            scheduler = object.__new__(kind)
            self.schedulers.append(scheduler)
            return scheduler

        lr_scheduler.LRScheduler.__new__ = new

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.taken:
            inner = {id(part) for scheduler in self.schedulers for part in parts_of(scheduler)[1:]}
            self.schedulers = [scheduler for scheduler in self.schedulers if id(scheduler) not in inner]
            for scheduler in self.schedulers:
                if not isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                    self.early += [id(scheduler)] if age(scheduler) > 0 else []
                    self.curves[id(scheduler)] = schedule_curve(scheduler, self._longest(scheduler))
        self.taken[id(optimizer)] = self.taken.get(id(optimizer), 0) + 1
        if self.taken[id(optimizer)] == 2:
            found = [self._played(scheduler) for scheduler in self.schedulers]
            rates = [float(group["lr"]) for group in optimizer.param_groups]
            result = {"schedulers": found, "constant": rates, "batches": self.batches}
            Path(self.wanted["file"]).write_text(json.dumps(result))
            raise StopTraining(0)

    def _played(self, scheduler: Any) -> dict[str, Any]:
        kind = type(scheduler).__name__
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            return {"type": kind, "unknown": "it goes by a metric, which only the training tells", "mistakes": []}
        if id(scheduler) not in self.curves:
            return {"type": kind, "unknown": "it was made after the first step", "mistakes": []}
        by_batch = age(scheduler) > (1 if id(scheduler) in self.early else 0)
        steps, epochs = self.wanted.get("steps"), self.wanted.get("epochs")
        if self.batches is None and (epochs if by_batch else steps):
            return {"type": kind, "ask": "steps_per_epoch", "stepped": "batch" if by_batch else "epoch", "mistakes": []}
        every = 1 if by_batch else self.batches or 1
        if steps is None:
            whole = epochs * (self.batches if self.batches is not None else 1) if epochs else None
            steps = whole or horizon(scheduler) * every
        curve = stretched(self.curves[id(scheduler)], steps, every)
        mistakes = check_schedule(curve)
        if id(scheduler) in self.early:
            mistakes.insert(0, "scheduler.step() comes before optimizer.step(): the first learning rate is skipped.")
        return {
            "type": kind,
            "stepped": "batch" if by_batch else "epoch",
            "every": every,
            "unit": "step" if by_batch or self.batches is not None else "epoch",
            "steps": steps,
            "steps_given": bool(self.wanted.get("steps") or self.wanted.get("epochs")),
            "rates": curve.rates,
            "base": curve.base,
            "mistakes": mistakes,
        }

    def _longest(self, scheduler: Any) -> int:
        """Steps of the scheduler that may be wanted of it, however often it is stepped."""
        steps = self.wanted.get("steps") or int(self.wanted.get("epochs") or 0) * (self.batches or 1)
        return int(steps) or horizon(scheduler)


def age(scheduler: Any) -> int:
    """How often it was stepped; one that is made of others may not count itself."""
    return max(int(getattr(part, "last_epoch", 0)) for part in parts_of(scheduler))


def horizon(scheduler: Any) -> int:
    """How many steps the scheduler was made for, as far as its numbers tell."""
    known = vars(scheduler)
    for name, times in (("total_steps", 1.0), ("T_max", 1.0), ("T_0", 3.0), ("step_size", 4.0), ("total_iters", 2.0)):
        if isinstance(known.get(name), int) and known[name] > 0:
            return max(2, int(known[name] * times))
    parts = known.get("_schedulers") or []
    marks = known.get("_milestones") or list(known.get("milestones") or [])
    if marks:
        last = max(int(mark) for mark in marks)
        return max(2, last + (horizon(parts[-1]) if parts else last))
    return max([horizon(part) for part in parts], default=100)


def rehearse() -> None:
    """Where the environment asks for it."""
    text = os.environ.get(ENVIRONMENT)
    if text and torch is not None:
        Rehearsal(json.loads(text))
