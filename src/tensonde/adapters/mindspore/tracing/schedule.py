"""Which steps are traced: the first, those that were asked for, and one that went wrong, which is run again (`replay.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tensonde.adapters.mindspore.tracing.tracer import Tracer

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative


class Tracing:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self.tracer: Tracer | None = None
        """The trace that is under way."""
        self.alarmed: int | None = None
        """The first step with a value that is not finite."""
        self.follow = False
        """The next step is to be traced: this one went wrong and cannot be run again."""
        self.told = False
        self.new_step(0)

    @property
    def wanted(self) -> bool:
        return self.follow or self.tracer is not None

    def new_step(self, step: int) -> None:
        options = self.training.session.options
        first, last = options.window
        if self.tracer is None and (self.follow or (options.budget != 0 and first <= step < last)):
            self.tracer = Tracer(self.training, live=True)
            self.tracer.begin()

    @property
    def to_replay(self) -> bool:
        """A value of this step is not finite, for the first time, and no trace shows it."""
        return self.alarmed == self.training.step and not self.told and self.tracer is None

    def alarmed_for_good(self) -> None:
        self.told = True

    def alarm(self, site: int) -> None:
        if self.alarmed is None and self.training.session.options.budget != 0:
            self.alarmed = self.training.step

    def finish_step(self, step: int) -> None:
        tracer, self.tracer = self.tracer, None
        if tracer is not None:
            tracer.pause()
            reason: Literal["first", "following"] = "first" if step == 0 else "following"
            self.write(tracer, step, reason)
            self.training.session.uncounted()
            self.follow = False

    def write(self, tracer: Tracer, step: int, reason: Any, *, exact: bool = True) -> None:
        try:
            trace = tracer.finish(step, reason, exact=exact)
            if not trace.ops and self.training.compiled:
                return
            self.training.session.writer.trace(trace)
            self.training.session.note("traced", step=step, reason=reason, ops=len(trace.ops))
        except Exception as problem:
            self.training.contain("writing a trace", problem)

    def end(self) -> None:
        if self.tracer is not None:
            self.tracer.pause()
            self.tracer = None
