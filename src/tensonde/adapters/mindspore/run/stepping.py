"""Where a step of a training ends, and what is looked at in the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensonde.model.site import Kind
from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative


class Stepping:
    """Belongs to the training thread."""

    def __init__(self, training: PyNative) -> None:
        self._training = training
        self._calls_at_mark: dict[str, int] = {}
        self.restful = False
        """Nobody has asked for anything that needs every step."""
        options = training.session.options
        self._asked_for = [
            *training.laboratory.steps,
            *options.save_steps,
            *(step for step in options.window if step > 1),
        ]
        if options.steps is not None:
            self._asked_for.append(options.steps - 1)

    def mark(self) -> None:
        """The step may turn out to have ended here (see `session/steps.py`)."""
        training = self._training
        training.session.mark()
        if training.dump is not None:
            training.dump.mark()
        self._calls_at_mark = {
            entry.name: entry.calls for entry in training.roster.entries.values() if entry.step == training.step
        }

    def _count_anew(self) -> None:
        """The step ended at the mark: what was called since are the first calls of the next."""
        training, marked = self._training, self._calls_at_mark
        for entry in training.roster.entries.values():
            if entry.step == training.step:
                entry.calls -= marked.get(entry.name, 0)
                entry.step += 1
        rows = training.session.since_mark()
        before = np.array(
            [marked.get(site.name, 0) if site.kind is Kind.MODULE else 0 for site in training.session.sites],
            dtype=np.int32,
        )
        rows["call"] = np.maximum(rows["call"] - before[rows["site"]], 0)

    def finish(self, *, behind: bool = False, scalars: dict[str, float] | None = None) -> None:
        """A step has ended. `behind`: at the mark, and the next one has begun already."""
        training, session = self._training, self._training.session
        mark = session.clock()
        if training.level == Level.FULL:
            training.parameters.digest_rest()
        if behind:
            self._count_anew()
        if training.twin is not None:
            training.twin.flush()
        training.tracing.finish_step(training.step)
        if training.dump is not None:
            training.dump.finish_step(training.step + 1, behind=behind)
        session.spent_since(mark)
        session.policy.may_rest = self._may_rest()
        session.finish_step(behind=behind, scalars=scalars)
        training.step = session.steps.step
        training.facts.finished_step(training.step)
        limit = session.options.steps
        if limit is not None and training.step >= limit:
            session.end(f"{limit} steps are done, as asked")
        training.stops.end_of_step()
        self.choose(behind=behind)
        training.tracing.new_step(training.step)
        training.laboratory.new_step(training.step)

    def choose(self, *, behind: bool = False) -> None:
        """A step ended: the next is looked at, or the first of a stretch that rests. `behind`: it has begun already."""
        training, policy = self._training, self._training.session.policy
        if policy.level < Level.SENTINEL:
            room = min([step - training.step for step in self._asked_for if step >= training.step], default=1 << 30)
            if policy.level is Level.REST and self._may_rest() and room > 0 and not behind:
                training.level = Level.SENTINEL
                training.rest.begin(min(policy.stretch, room), policy.cold)
                return
            policy.level = Level.SENTINEL
        training.level = Level.FULL if training.stops.whole else policy.level

    def _may_rest(self) -> bool:
        training, session = self._training, self._training.session
        return (
            self.restful
            and session.steps.has_optimizer
            and not training.compiled  # the steps of compiled code are counted by looking
            and not training.stack
            and not training.tracing.wanted
            and not session.gate.asked
            and not training.stops.keeping
            and training.twin is None
        )
