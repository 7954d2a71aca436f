"""Asks a step of the training while it waits before its optimizer: its forward pass is run again once and recorded, everything is put back,
and experiments compute with what was recorded.

Belongs to the training thread. Which steps are asked, and how long each may take, is in `experiments/timetable.py`. Dropout lets everything pass when a
pass is run again, since MindSpore cannot draw the random numbers of a CPU a second time; without dropout, the pass has to come out the same to the last bit.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np

from tensonde.adapters.mindspore.experiments.graph import StepGraph
from tensonde.adapters.mindspore.experiments.recorder import Recorder, copy_of
from tensonde.adapters.mindspore.experiments.surroundings import Surroundings, argument_names
from tensonde.adapters.mindspore.experiments.trials import Trials
from tensonde.adapters.mindspore.observers.origins import KNOWN, groups_of
from tensonde.adapters.mindspore.tensors import is_parameter, is_tensor, tensors_in, values_of
from tensonde.adapters.mindspore.tracing.dispatch import AVAILABLE
from tensonde.adapters.mindspore.tracing.replay import Refused, State, undisturbed
from tensonde.adapters.mindspore.tracing.tracer import key_of
from tensonde.experiments import EXPERIMENTS
from tensonde.experiments.experiment import Inquiry
from tensonde.experiments.step import NotPossible
from tensonde.experiments.timetable import RECORDING, SMALLEST, STEPS, TOO_LONG, Timetable
from tensonde.model.moment import Phase
from tensonde.program.lines import from_json
from tensonde.session.garbage import Unhurried
from tensonde.session.session import StopTraining

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

log = logging.getLogger("tensonde.session")


class Laboratory:
    def __init__(self, training: PyNative) -> None:
        self._training = training
        self.inquiry = Inquiry()
        options = training.session.options
        # Ops run in threads of MindSpore's own.
        self.times = Timetable(options.experiments, lambda: time.process_time, options.steps)
        self.off = not self.times.seconds or options.budget == 0 or options.replay is not None or not AVAILABLE
        if options.twin is not None or options.dump is not None or options.debug:
            self.off = True
        if options.experiments_by_default:
            # To compute an op again can crash MindSpore itself, which nothing contains: a training takes that risk only for a user who wants it.
            self.off = True
        self._passes: list[tuple[Any, tuple[Any, ...], Any]] = []
        """Of this step: functions, what they were given, and what came out."""
        self._stepping: set[int] = set()
        """Optimizers that have stepped."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps that are to be seen as a whole."""
        return () if self.off else STEPS

    def new_step(self, step: int) -> None:
        self._passes = []
        if not self.off:
            self.times.notice(step)

    def passed(self, fn: Any, args: tuple[Any, ...], operation: Any, loss: Any) -> None:
        """A pass of the training was differentiated."""
        if not self.off and self._training.step in STEPS:
            given = args[:-1] if getattr(operation, "sens_param", False) else args
            self._passes.append((fn, given, loss))

    def ask(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """The gradients of the step are there, and this optimizer is about to step with them."""
        if self.off:
            return
        self._stepping.add(KNOWN.number(optimizer))
        training, passes = self._training, self._passes
        step = training.step
        if not self.times.notice(step) or not passes or training.tracing.tracer is not None:
            return
        self._passes = []
        session = training.session
        began = self.times.now()
        try:
            if training.other_threads:
                raise NotPossible("several threads call models")
            deadline = began + self.times.allowed(step, self.inquiry.dues)
            from tensonde.adapters.mindspore.seams.place import unobserved

            with Unhurried():
                graph = self._recorded(passes, optimizer, gradients, deadline)
                with unobserved(), _random_kept():
                    self.inquiry.ask(
                        graph, EXPERIMENTS, lambda problem: session.guard.contain("an experiment", problem)
                    )
        except NotPossible as why:
            self.inquiry.declined(step, str(why))
        finally:
            self.times.spent += self.times.now() - began
            session.uncounted()
            session.experiments_seconds = self.times.spent

    # -- recording it ----------------------------------------------------------------------------

    def _recorded(
        self, passes: list[tuple[Any, tuple[Any, ...], Any]], optimizer: Any, gradients: Sequence[Any], deadline: float
    ) -> StepGraph:
        from tensonde.adapters.mindspore.seams.cells import original_call
        from tensonde.adapters.mindspore.seams.place import HERE

        fn, args, loss = passes[-1]
        began = self.times.now()
        last = began + RECORDING * (deadline - began)
        recorder = Recorder(self._training, lambda: self.times.now() > last)
        washed = [copy_of(one) if is_tensor(one) and not is_parameter(one) else one for one in args]
        try:
            again = tensors_in(self._run(recorder, fn, tuple(washed)))[:1]
        finally:
            self.times.recording = self.times.now() - began
        first = tensors_in(loss)[:1]
        if not again or not first or again[0].size != 1 or key_of(again[0]) not in recorder.numbers:
            raise NotPossible("what is differentiated is not one number")
        was, now = values_of(first[0]), values_of(again[0])
        if was is None or now is None or (not recorder.left_out and not np.array_equal(was, now, equal_nan=True)):
            raise NotPossible("the step does not come out as it did when it is run again")
        graph = StepGraph(recorder, recorder.numbers[key_of(again[0])], self._training.step, deadline, self.times.now)
        self._describe(graph, recorder, fn, args, washed)
        began = self.times.now()
        from tensonde.adapters.mindspore.seams.place import unobserved

        with unobserved():
            third = graph.loss_with({})
        graph.seconds_each = self.times.now() - began
        if graph.seconds_each > SMALLEST * (deadline - began):
            raise NotPossible(TOO_LONG)
        if third != float(now.reshape(-1)[0]) and third == third:
            raise NotPossible("the ops of the step do not give the same again")

        def call(holder: Any, given: tuple[Any, ...]) -> None:
            HERE.in_optimizer = True
            try:
                original_call(holder, given)
            finally:
                HERE.in_optimizer = False

        graph.trials = Trials(optimizer, gradients, call)
        graph.optimizer = type(optimizer).__name__
        graph.optimizer_source = from_json(KNOWN.made.line(optimizer))
        groups = groups_of(optimizer)
        graph.rates = tuple(float(lr) for group in groups if isinstance(lr := group.get("lr"), int | float))
        graph.decay = max(
            (float(d) for g in groups if isinstance(d := g.get("weight_decay"), int | float)), default=0.0
        )
        graph.several = len(passes) > 1 or len(self._stepping) > 1
        return graph

    def _run(self, recorder: Recorder, fn: Any, args: tuple[Any, ...]) -> Any:
        from tensonde.adapters.mindspore.graphs.rehearsal import OptimizerReached
        from tensonde.adapters.mindspore.seams.passes import replaying

        training = self._training
        state = State(training, fn)
        grad_on, phase, stack = training.grad_on, training.phase, list(training.stack)
        try:
            with replaying(recorder, compiled=True), undisturbed(training), recorder.recording():
                training.grad_on, training.stack[:] = True, []
                training.set_phase(Phase.FORWARD)
                return fn(*args)
        except (Refused, StopTraining, OptimizerReached) as problem:
            raise NotPossible(f"the step cannot be run again: {problem or 'it steps inside'}") from None
        except NotPossible:
            raise
        except Exception as problem:
            log.debug("recording a step failed", exc_info=problem)
            raise NotPossible(f"running the step again failed: {type(problem).__name__}: {problem}"[:200]) from None
        finally:
            training.grad_on, training.stack[:] = grad_on, stack
            training.set_phase(phase)
            state.restore()

    def _describe(
        self, graph: StepGraph, recorder: Recorder, fn: Any, args: Sequence[Any], washed: Sequence[Any]
    ) -> None:
        names = argument_names(fn)
        given: dict[int, Any] = {}
        called: dict[int, str] = {}
        for k, (original, stand_in) in enumerate(zip(args, washed, strict=True)):
            number = recorder.numbers.get(key_of(stand_in)) if is_tensor(stand_in) else None
            if number is not None:
                given[int(number)] = original
                called[int(number)] = names[k] if k < len(names) else ""
        around = Surroundings(self._training, recorder, given, called, sys._getframe(1))
        graph.values = values = around.values(graph.places)
        graph.loss_source = next((op.source for op in reversed(graph.ops) if graph.loss in op.outputs), None)
        graph.batch = around.batch(values, graph.array)
        graph.held = around.held
        graph.ways = around.ways


class _random_kept:
    """Random generators are as before afterwards."""

    def __enter__(self) -> None:
        self._state = random.getstate(), np.random.get_state(), mindspore.get_rng_state()

    def __exit__(self, *problem: Any) -> None:
        random.setstate(self._state[0])
        np.random.set_state(self._state[1])
        mindspore.set_rng_state(self._state[2])
