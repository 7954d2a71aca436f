"""Steps that are traced as they run: the first, one after a step that could not be run again, and one of each later stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tensonde.adapters.torch.observers.beginnings import BEGINNINGS
from tensonde.adapters.torch.replay.tape import Tape
from tensonde.adapters.torch.run.record import is_compiled
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import transforming
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.adapters.torch.twins import TwinFeed
from tensonde.model.trace import Trace
from tensonde.session.garbage import Unhurried

MOST_STAGES = 3
"""Whole steps that are traced beside the first: of stages, whose loss is often another one."""
_DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub", "rsub")


class LiveTrace:
    """Nothing here is asked while a step is run again."""

    def __init__(self, state: RunState, tape: Tape, twin: TwinFeed | None) -> None:
        self.state = state
        self.tracer: Tracer | None = None
        """The trace that is under way, of this step or of one that is run again."""
        self._tape = tape
        self._twin = twin
        self.follow = False
        """The next step is to be traced: this one went wrong and cannot be run again, or not all of it was seen."""
        self._stages = MOST_STAGES
        self._stage = False
        """The next step is to be traced as a whole."""
        self.staged = False
        """Such a trace is under way. It is of ops alone: weights are weighed in the first step."""
        self._aside: Tracer | None = None
        """The tracer that looks away while an optimizer steps."""
        self._began = 0
        self._collections = Unhurried()
        self.ops = 0
        """How many the latest trace has."""

    @property
    def wanted(self) -> bool:
        """A step that comes soon is to be traced."""
        return self.follow or self._stage

    def in_window(self, step: int) -> bool:
        """Whether the user wants this step traced: the first one, or those that a comparison asks for."""
        options = self.state.session.options
        first, last = options.window
        return options.budget != 0 and first <= step < last

    def begin(self, *, sketch: bool = True) -> None:
        self._tape.rest()
        self._tape.wanted = self.staged = False
        self.tracer = Tracer(self.state, twin=self._twin, sketch=sketch)
        self.tracer.begin()
        self._collections.begin()
        self._began = time.perf_counter_ns()

    def stage_begins(self) -> None:
        """An optimizer was made during the training: from now on another loss or model may be trained. Its first step is
        let pass, the second is traced."""
        options = self.state.session.options
        if self._stages and options.budget != 0 and options.window == (0, 1) and self._twin is None:
            self._stage = True

    def begin_next(self, step: int, *, behind: bool, stages: bool) -> bool:
        """Whether the coming step is traced, which begins now. `behind`: it has begun already. `stages`: those, too."""
        if self.follow or self.in_window(step):
            self.follow = False
            self.begin()
            return True
        if not self._stage or not stages:
            return False
        self._stages -= 1
        self._stage = False
        self.begin(sketch=False)
        self.staged = True
        self._tape.wanted = True  # as in the first step: should it go wrong, it can be saved
        if not behind:
            self._tape.resume()
        return True

    def finish(self, step: int) -> Trace | None:
        """The step is over, and its trace, if it had one."""
        state, tracer = self.state, self.tracer
        if tracer is None:
            return None
        self.tracer = None
        tracer.pause()
        if self._twin is not None:
            self._twin.flush()
        trace = tracer.finish(step, "first" if step == 0 else "stage" if self.staged else "following")
        self.staged = False
        self.ops = len(trace.ops)
        if step == 0 and _from_before(trace):
            self.stage_begins()
        if step == 0 and state.session.world > 1:
            BEGINNINGS.traced(trace)
        seconds = (time.perf_counter_ns() - self._began) * 1e-9
        state.session.note("traced", step=step, reason=trace.reason, ops=len(trace.ops), seconds=round(seconds, 4))
        return trace

    def settle(self) -> None:
        """The trace is written, and let go."""
        if self.tracer is None:
            self._collections.end()

    def optimizer_begins(self, optimizer: Optimizer) -> None:
        """One of torch's own steps, and calls no model. It asks every parameter for its attributes, which would pass by the tracer."""
        tracer = self.tracer
        if tracer is not None and not tracer.paused and type(optimizer).__module__.startswith("torch.optim"):
            tracer.pause()
            self._aside = tracer

    def optimizer_ended(self) -> None:
        tracer, self._aside = self._aside, None
        if tracer is not None and tracer is self.tracer:
            tracer.begin()

    def end(self) -> None:
        if self.tracer is not None:
            self.tracer.pause()
            self.tracer.weights.end()
            self.tracer = None
        self._collections.end()

    def give_up(self, why: str) -> None:
        if self.tracer is not None:
            self.end()
            self.state.session.note("trace_skipped", step=self.state.step, why=why)

    # -- calls -----------------------------------------------------------------------------------

    def call(self, tracer: Tracer, observed: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """A module is called; `observed` calls it and has it observed."""
        state = self.state
        if state.thread != get_ident():
            return observed(module, args, kwargs)
        evaluated = not state.stack and not module.training and not torch.is_grad_enabled()
        if self.staged and (evaluated or tracer.paused):
            with self.paused(tracer):  # an evaluation, which may be long, between this step and the last
                return observed(module, args, kwargs)
        grad = torch.is_grad_enabled()
        if not state.stack and self._twin is None:  # a comparison wants them all
            tracer.root_called(grad=grad)
        if tracer.sated and not grad:
            return observed(module, args, kwargs)
        known = state.roster.entries.get(id(module))
        if known is not None:
            tracer.entered(known)
        compiled = is_compiled(module)
        if not compiled and not transforming():
            return self._recorded(tracer, observed, module, args, kwargs)
        note = f"{type(module).__name__} is {'compiled' if compiled else 'transformed'}, so its ops were not traced"
        if note not in tracer.notes:
            tracer.notes.append(note)
        with self.paused(tracer):  # the compiler must not see it
            return observed(module, args, kwargs)

    def _recorded(self, tracer: Tracer, observed: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        begun, out = None, None
        guard = self.state.session.guard
        try:
            begun = tracer.call_begins(args, kwargs)
        except Exception as problem:
            guard.contain("tracing a module", problem)
        try:
            out = observed(module, args, kwargs)
        finally:
            if begun is not None:
                try:
                    tracer.call_ended(begun, module, out)
                except Exception as problem:
                    guard.contain("tracing a module", problem)
        return out

    @contextlib.contextmanager
    def paused(self, tracer: Tracer) -> Iterator[None]:
        if tracer.paused:  # by an outer caller
            yield
            return
        tracer.pause()
        try:
            yield
        finally:
            if self.tracer is tracer:
                tracer.begin()


def _from_before(trace: Trace) -> bool:
    """A distance is measured to what was made before the first module was called, which the trace of the first step has
    not seen."""
    return any(
        op.op in _DISTANCES
        and len(op.inputs) >= 2
        and op.inputs[0].shape == op.inputs[1].shape
        and any(fact.requires_grad for fact in op.inputs[:2])
        and any(fact.producer is None and not fact.requires_grad and not fact.name for fact in op.inputs[:2])
        for op in trace.ops
    )
