"""`tensonde lr` inside the script: finds its schedulers, sees how often they are stepped, plays them through, and ends it.

The script runs until every optimizer that has a schedule is about to step for the second time. If a scheduler was stepped
by then, it is stepped at every batch; if not, once per epoch. The loader that gave the last batch tells the length of an epoch,
and the batches between two steps of the optimizer (gradient accumulation, several critic steps) how many steps that is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tensonde.session.session import StopTraining
from tensonde.train.curve import Curve, check_schedule, parts_of, schedule_curve, stretched
from tensonde.train.fetched import Fetched

ENVIRONMENT = "TENSONDE_LR"
"""JSON: `file` for the result; `steps`, `epochs` and `steps_per_epoch` where the user said them."""
PATIENCE = 100
"""Steps of one optimizer after which an optimizer that has not stepped twice is not waited for."""


class Rehearsal:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.schedulers: list[Any] = []
        self.fetched = Fetched()
        self.taken: dict[int, int] = {}
        """Steps of each optimizer so far, by `key`."""
        self.first: dict[int, int] = {}
        """Batches before the first step of each."""
        self.each: dict[int, int] = {}
        """Batches between the first two steps of each."""
        self.ages: dict[int, int] = {}
        """How often each scheduler was stepped before the second step of its optimizer."""
        self.early: list[int] = []
        self.curves: dict[int, Curve] = {}
        """Played through before the first step."""
        self._observe()
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
        this = key(optimizer)
        self.taken[this] = self.taken.get(this, 0) + 1
        if self.taken[this] == 1:
            self.first[this] = self.fetched.count
        elif self.taken[this] == 2:
            self.each[this] = max(1, self.fetched.count - self.first[this])
            own = [scheduler for scheduler in self.schedulers if key(scheduler.optimizer) == this]
            self.ages |= {id(scheduler): age(scheduler) for scheduler in own}
        if self.taken[this] >= 2 and (self.taken[this] >= PATIENCE or not self._waiting()):
            found = [self._played(scheduler) for scheduler in self.schedulers]
            rates = [float(group["lr"]) for group in optimizer.param_groups]
            batches = self.wanted.get("steps_per_epoch") or self.fetched.length
            result = {"schedulers": found, "constant": rates, "batches": batches}
            Path(self.wanted["file"]).write_text(json.dumps(result))
            raise StopTraining(0)

    def _waiting(self) -> bool:
        """Whether a schedule's optimizer is still to step twice."""
        return any(self.taken.get(key(scheduler.optimizer), 0) < 2 for scheduler in self.schedulers)

    def _epoch(self, scheduler: Any) -> int | None:
        """Steps of its optimizer in an epoch, as far as is known."""
        given: int | None = self.wanted.get("steps_per_epoch")
        if given is not None or self.fetched.length is None:
            return given
        return -(-self.fetched.length // self.each.get(key(scheduler.optimizer), 1))

    def _played(self, scheduler: Any) -> dict[str, Any]:
        kind = type(scheduler).__name__
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            return {"type": kind, "unknown": "it goes by a metric, which only the training tells", "mistakes": []}
        if id(scheduler) not in self.curves:
            return {"type": kind, "unknown": "it was made after the first step", "mistakes": []}
        by_batch = self.ages.get(id(scheduler), age(scheduler)) > (1 if id(scheduler) in self.early else 0)
        steps, epochs = self.wanted.get("steps"), self.wanted.get("epochs")
        length = self._epoch(scheduler)
        if length is None and (epochs if by_batch else steps):
            return {"type": kind, "ask": "steps_per_epoch", "stepped": "batch" if by_batch else "epoch", "mistakes": []}
        every = 1 if by_batch else length or 1
        if steps is None:
            whole = epochs * (length or 1) if epochs else None
            steps = whole or horizon(scheduler) * every
        curve = stretched(self.curves[id(scheduler)], steps, every)
        mistakes = check_schedule(curve)
        if id(scheduler) in self.early:
            mistakes.insert(0, "scheduler.step() comes before optimizer.step(): the first learning rate is skipped.")
        return {
            "type": kind,
            "stepped": "batch" if by_batch else "epoch",
            "every": every,
            "unit": "step" if by_batch or length is not None else "epoch",
            "steps": steps,
            "steps_given": bool(self.wanted.get("steps") or self.wanted.get("epochs")),
            "rates": curve.rates,
            "base": curve.base,
            "mistakes": mistakes,
        }

    def _longest(self, scheduler: Any) -> int:
        """Steps of the scheduler that may be wanted of it, however often it is stepped."""
        steps = self.wanted.get("steps") or int(self.wanted.get("epochs") or 0) * (self._epoch(scheduler) or 1)
        return int(steps) or horizon(scheduler)


def key(optimizer: Any) -> int:
    """The same for an optimizer and for what stands for it (accelerate's wrapper)."""
    return id(optimizer.param_groups)


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
