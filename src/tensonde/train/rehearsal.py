"""`tensonde lr` inside the script: finds its schedulers, sees how often they are stepped, plays them through, and ends it.

The script runs until its second optimizer step. If a scheduler was stepped by then, it is stepped at every batch;
if not, once an epoch, whose length the data loader tells.
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
from tensonde.train.curve import Curve, check_schedule, schedule_curve, stretched
from tensonde.train.loop import length

ENVIRONMENT = "TENSONDE_LR"
"""JSON: `file` for the result, `steps` and `epochs` where the user said them."""


class Rehearsal:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.schedulers: list[Any] = []
        self.batches: int | None = None
        self.steps = 0
        self.early: list[int] = []
        self.curves: dict[int, Curve] = {}
        """Played through before the first step."""
        self._observe(lr_scheduler.LRScheduler)
        self._observe(lr_scheduler.ReduceLROnPlateau)
        iterate = DataLoader.__iter__

        @functools.wraps(iterate)
        def counting(loader: Any) -> Any:
            if self.batches is None:
                self.batches = length(loader)
            return iterate(loader)

        DataLoader.__iter__ = counting
        register_optimizer_step_pre_hook(self._before_step)

    def _observe(self, kind: Any) -> None:
        original = kind.__init__

        @functools.wraps(original)
        def init(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            if all(known is not scheduler for known in self.schedulers):
                self.schedulers.append(scheduler)
            original(scheduler, *args, **kwargs)

        kind.__init__ = init

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.steps == 0:
            for scheduler in self.schedulers:
                if not isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                    self.early += [id(scheduler)] if scheduler.last_epoch > 0 else []
                    self.curves[id(scheduler)] = schedule_curve(scheduler, self._steps(scheduler, 1))
        self.steps += 1
        if self.steps == 2:
            inner = {id(part) for s in self.schedulers for part in getattr(s, "_schedulers", [])}
            found = [self._played(s) for s in self.schedulers if id(s) not in inner]
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
        by_batch = scheduler.last_epoch > (1 if id(scheduler) in self.early else 0)
        every = 1 if by_batch else self.batches or 1
        steps = self._steps(scheduler, every)
        curve = stretched(self.curves[id(scheduler)], steps, every)
        mistakes = check_schedule(curve)
        if id(scheduler) in self.early:
            mistakes.insert(0, "scheduler.step() comes before optimizer.step(): the first learning rate is skipped.")
        return {
            "type": kind,
            "stepped": "batch" if by_batch else "epoch",
            "every": every,
            "steps": steps,
            "steps_given": bool(self.wanted.get("steps") or self.wanted.get("epochs")),
            "rates": curve.rates,
            "base": curve.base,
            "mistakes": mistakes,
        }

    def _steps(self, scheduler: Any, every: int) -> int:
        """Optimizer steps of the training: as was said, or as the scheduler was made for."""
        if self.wanted.get("steps"):
            return int(self.wanted["steps"])
        if self.wanted.get("epochs"):
            return int(self.wanted["epochs"]) * (self.batches or 1)
        return horizon(scheduler) * every


def horizon(scheduler: Any) -> int:
    """How many steps the scheduler was made for, as far as its numbers tell."""
    known = vars(scheduler)
    for name, times in (("total_steps", 1.0), ("T_max", 1.0), ("T_0", 3.0), ("step_size", 4.0), ("total_iters", 2.0)):
        if isinstance(known.get(name), int) and known[name] > 0:
            return max(2, int(known[name] * times))
    marks = known.get("_milestones") or list(known.get("milestones") or [])
    if marks:
        last = max(int(mark) for mark in marks)
        return max(2, last + (horizon(known["_schedulers"][-1]) if known.get("_schedulers") else last))
    return 100


def rehearse() -> None:
    """Where the environment asks for it."""
    text = os.environ.get(ENVIRONMENT)
    if text and torch is not None:
        Rehearsal(json.loads(text))
