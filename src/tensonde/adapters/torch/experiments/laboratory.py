"""Asks a step of the training while it waits before its optimizer: the step is run again once and recorded, everything is put back
and checked, and experiments compute with what was recorded.

Belongs to the training thread. Which steps are asked, and how long each may take, is in `experiments/timetable.py`.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.experiments.evaluations import Evaluations
from tensonde.adapters.torch.experiments.graph import StepGraph
from tensonde.adapters.torch.experiments.own_functions import own_functions
from tensonde.adapters.torch.experiments.recorder import MOST_BYTES, Reads, Recorder
from tensonde.adapters.torch.experiments.surroundings import Surroundings
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.randomness import Drawn
from tensonde.adapters.torch.replay.execute import Losses, execute, put, same
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.undisturbed import roots_of, undisturbed
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import look, look_away, unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.experiments import EXPERIMENTS, held_out
from tensonde.experiments.experiment import Inquiry
from tensonde.experiments.pairs import PAIRS, rows_of
from tensonde.experiments.step import NotPossible, OwnFunction, Value
from tensonde.experiments.timetable import RECORDING, SMALLEST, STEPS, TOO_LONG, Timetable
from tensonde.model.site import SourceLine
from tensonde.program.encodings import made_for_each
from tensonde.program.frames import foreign_frames, is_user
from tensonde.program.lines import from_json, source_line
from tensonde.session.garbage import Unhurried

COPIES = 7
"""Of the parameters, that experiments have on a device at once: as they were, gradients, and those of a step that is tried. 6.3 on the stand-in."""
_SCALING = frozenset(("mul", "div", "mul_", "div_"))
log = logging.getLogger("tensonde.session")


class Laboratory:
    def __init__(self, state: RunState, replay: Replay) -> None:
        self._state, self._replay = state, replay
        self.inquiry = Inquiry()
        options = state.session.options
        self.times = Timetable(options.experiments, lambda: self._clock, options.steps)
        self.off = not self.times.seconds or options.budget == 0 or options.replay is not None
        if options.twin is not None or options.dump is not None or options.debug:
            self.off = True
        self.evaluations = Evaluations(state)
        self.evaluations.off = self.off
        self._held_out: set[tuple[int, int]] = set()
        """Evaluations that were asked, by step and rows."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps that are to be seen as a whole."""
        return () if self.off else STEPS

    def wants(self, step: int) -> bool:
        return not self.off and self.times.notice(step) and self._replay.tracing.tracer is None

    # -- a step ----------------------------------------------------------------------------------

    def ask(self, optimizer: Any) -> None:
        """The gradients of the step are there, and this optimizer is about to step."""
        guard = self._state.session.guard
        caller = next(foreign_frames(sys._getframe(1)), None)
        if caller is None or not is_user(caller.f_code):
            self.inquiry.declined(self._state.step, "a library runs the steps, and what it means by them is not known")
            return
        if self._state.other_threads:
            self.inquiry.declined(self._state.step, "several threads call models")
            return
        began = self._clock()
        try:
            allowed = self.times.allowed(self._state.step, self.inquiry.dues)
        except NotPossible as why:
            self.inquiry.declined(self._state.step, str(why))
            return
        try:
            with Unhurried():
                graph = self._recorded(optimizer, began + allowed)
                with unseen(), _random_kept():
                    self.inquiry.ask(graph, EXPERIMENTS, lambda problem: guard.contain("an experiment", problem))
        except NotPossible as why:
            self.inquiry.declined(self._state.step, str(why))
        finally:
            self.times.spent += self._clock() - began
            self._state.session.uncounted()
            self._state.session.experiments_seconds = self.times.spent

    @property
    def _clock(self) -> Callable[[], float]:
        """Of the processor; of the wall where a device computes, for which this thread waits."""
        return time.perf_counter if self._replay.digests.device.used else time.thread_time

    def facts(self) -> list[dict[str, Any]]:
        try:
            with unseen():
                self._look_at_evaluations()
        except Exception as problem:  # the other facts are kept, whatever becomes of this one
            self._state.session.guard.contain("an experiment", problem)
        return self.inquiry.facts()

    def _look_at_evaluations(self) -> None:
        """Asks what evaluations have shown so far, each once; rows of the first and the last are there to say why."""
        asked = [e for e in self.evaluations.seen.values() if (e.step, len(e.said)) not in self._held_out]
        if not asked:
            return
        began = self._clock()
        rows = rows_of(self.inquiry.memory(PAIRS))
        for evaluation in sorted(asked, key=lambda e: e.step):
            self._held_out.add((evaluation.step, len(evaluation.said)))
            self.inquiry.told(
                held_out.NAME, held_out.QUESTION, evaluation.step, held_out.answer(evaluation, rows, _encoded)
            )
        self.times.spent += self._clock() - began
        self._state.session.experiments_seconds = self.times.spent

    # -- recording it ----------------------------------------------------------------------------

    def _recorded(self, optimizer: Any, deadline: float) -> StepGraph:
        replay = self._replay
        tape = replay.tape
        cannot = replay.off or replay.refused or tape.trouble or replay._forbidden()
        if cannot:
            raise NotPossible(cannot)
        exact = tape.unchanged()
        earlier = _accumulated(tape.entries, tape.losses)
        taken = self._taken(tape.entries, tape.losses, deadline, earlier)
        alive = tape.alive([taken.slot])
        for held, tensor in alive:
            exact = exact and same(taken.values[held].detach(), tensor.detach())
        if not alive:  # `(loss / 4).backward()` keeps none; its value was noted
            loss = taken.values[taken.slot].detach()
            exact = exact and loss.numel() == 1 and float(loss) == self._state.loss
        if not exact:
            raise NotPossible("the step does not come out as it did when it is run again")
        graph = self._graph(taken, deadline)
        self._describe(graph, taken, [tensor for _, tensor in alive])
        graph.holder = optimizer
        graph.optimizer = type(optimizer).__name__
        graph.optimizer_source = from_json(KNOWN.made.line(optimizer))
        graph.rates = tuple(float(group["lr"]) for group in optimizer.param_groups if "lr" in group)
        graph.decay = max((float(group.get("weight_decay") or 0) for group in optimizer.param_groups), default=0.0)
        stepping = [known for known in KNOWN.mine() if KNOWN.number(known) in KNOWN.stepped]
        graph.accumulated = earlier > 0
        graph.several = (len(tape.losses) > 1 and not earlier) or len(stepping) > 1
        return graph

    def ask_saved(self, entries: list[Any], losses: Losses, step: int, seconds: float) -> None:
        """A step that was saved, in a process of its own, where no optimizer is."""
        guard = self._state.session.guard
        try:
            deadline = self._clock() + seconds
            graph = self._graph(taken := self._taken(entries, losses, deadline), deadline)
            self._describe(graph, taken, [])
            graph.values = [_named(value) for value in graph.values]
            graph.several = len(losses) > 1
            with unseen(), _random_kept():
                everything = [replace(experiment, first=0) for experiment in EXPERIMENTS]
                self.inquiry.ask(graph, everything, lambda problem: guard.contain("an experiment", problem))
        except NotPossible as why:
            self.inquiry.declined(step, str(why))

    def _taken(self, entries: list[Any], losses: Losses, deadline: float, unrecorded: int = 0) -> _Taken:
        """The step, run again under the recorder, with everything put back. The recorder does not see the first entries, `unrecorded` of them."""
        state, replay = self._state, self._replay
        cannot = ""
        if not entries or not losses:
            cannot = "no loss of this step was recorded"
        elif any(entry.call.__class__.__name__ == "OptimizedModule" for entry in entries):
            cannot = "the model is compiled"
        elif capturing():
            cannot = "the device takes the step down as a graph"
        if cannot:
            raise NotPossible(cannot)
        room = self._room(entries)
        with unseen():
            before = Before(roots_of(entries))
        if before.trouble:
            raise NotPossible(before.trouble)
        tracer = Tracer(state)
        taken = _Taken(entries, Recorder(state, execute.__code__), Reads(), unrecorded)
        taken.recorder.limit = min(taken.recorder.limit, room)
        began = self._clock()
        last = began + RECORDING * (deadline - began)
        taken.recorder.late = lambda: self._clock() > last
        with undisturbed(state, replay, before, tracer) as lost:
            try:
                copy_context().run(self._run, taken)
                taken.functions += own_functions(taken.recorder)
            except NotPossible:
                raise
            except Exception as problem:
                log.debug("recording a step failed", exc_info=problem)
                raise NotPossible(f"running the step again failed: {type(problem).__name__}: {problem}"[:200]) from None
            finally:
                self.times.recording = self._clock() - began
        replay._take_stock(lost, before.writes.refused, [], state.step)
        if lost or before.writes.refused:
            raise NotPossible(replay.refused)
        taken.slot = next((slot for slot in (losses[-1][1], losses[-1][0]) if slot in taken.values), None)
        if taken.slot is None:
            raise NotPossible("the step does not come out as it did when it is run again")
        return taken

    def _graph(self, taken: _Taken, deadline: float) -> StepGraph:
        recorder, loss = taken.recorder, taken.values[taken.slot]
        if loss.numel() != 1 or id(loss) not in recorder.numbers:
            raise NotPossible("what is differentiated is not one number")
        outside = zip(recorder.tensors, recorder.maker, strict=True)
        if any(
            maker < 0 and tensor.grad_fn is not None for tensor, maker in outside
        ):  # an object of the model's holds it, say
            raise NotPossible("the loss is computed from something that was not recorded")
        graph = StepGraph(recorder, recorder.numbers[id(loss)], self._state.step, deadline, self._clock)
        graph.functions = taken.functions
        began = self._clock()
        with torch.no_grad(), unseen(), _random_kept():
            again = graph.loss_with({})
        graph.seconds_each = self._clock() - began
        if graph.seconds_each > SMALLEST * (deadline - began):
            raise NotPossible(TOO_LONG)
        if again != float(loss.detach()) and not (again != again):
            raise NotPossible("the ops of the step do not give the same again")
        return graph

    def _room(self, entries: list[Any]) -> int:
        """Bytes that a recorded step may take. On a device, experiments take no more than a quarter of what is free there: all copies of the
        parameters, and the recorded step, which is kept and computed again beside that."""
        if not self._replay.digests.device.used:
            return MOST_BYTES
        try:
            room = int(torch.accelerator.get_memory_info()[0] // 4)
        except Exception:  # a device that does not say
            room = MOST_BYTES // 8
        roots = {id(entry.call): entry.call for entry in entries if isinstance(entry.call, nn.Module)}
        parts = {id(p): p for root in roots.values() for p in root.parameters() if p.device.type != "cpu"}
        copies: int = COPIES * sum(p.numel() * p.element_size() for p in parts.values())
        if copies >= room:
            raise NotPossible(
                f"the device has too little free memory: experiments would need {copies >> 20} MiB and more, and take at most a quarter "
                f"of what is free, {room >> 20} MiB"
            )
        return (room - copies) // 2

    def _run(self, taken: _Taken) -> None:
        recorder = taken.recorder
        for entry in taken.entries[: taken.unrecorded]:
            taken.values |= execute(entry, taken.values)
        look(taken.reads)
        try:
            with recorder:
                for entry in taken.entries[taken.unrecorded :]:
                    recorder.outside = entry.where(self._state)
                    if isinstance(entry.call, nn.Module) and _learns(entry.call):
                        taken.handed |= {id(t) for t in tensors_in(put((entry.args, entry.kwargs), taken.values))}
                    taken.values |= execute(entry, taken.values)
        finally:
            look_away(taken.reads)

    def _describe(self, graph: StepGraph, taken: _Taken, losses: list[Tensor]) -> None:
        recorder = taken.recorder
        roots = [entry.call for entry in taken.entries if isinstance(entry.call, nn.Module)]
        tape = self._replay.tape

        def again(tensor: Tensor) -> Tensor | None:
            return taken.values.get(slot) if (slot := tape.slot(tensor)) is not None else None

        around = Surroundings(self._state, recorder, taken.handed, roots, sys._getframe(1), again)
        read = set(recorder.read) | {recorder.numbers[id(t)] for t in taken.reads.tensors if id(t) in recorder.numbers}
        graph.values = values = around.values({int(ref) for ref in read})
        graph.loss_source = around.loss_line(losses) or _computed_at(graph)
        graph.batch = around.batch(values, list(graph.ops))
        graph.idle = around.idle(values)
        graph.held = around.held
        graph.ways = around.ways


@dataclass
class _Taken:
    """A step as the recorder has taken it down."""

    entries: list[Any]
    recorder: Recorder
    reads: Reads
    unrecorded: int = 0
    """Entries at the beginning that are run, and not recorded."""
    values: dict[Any, Tensor] = field(default_factory=dict)
    handed: set[int] = field(default_factory=set)
    """Ids of what models were given."""
    functions: list[OwnFunction] = field(default_factory=list)
    slot: Any = None
    """Of the loss."""


def _encoded() -> SourceLine | None:
    """The line of the program that numbers words or classes anew for each of its data sets."""
    found = [(path, line) for path in KNOWN.files() if (line := made_for_each(path)) is not None]
    return source_line(*found[0]) if found else None


def _computed_at(graph: StepGraph) -> SourceLine | None:
    """The line that computes the loss; one that only scales it by a number (`(loss / 4).backward()`) is passed over."""
    made = {number: op for op in graph.ops for number in op.outputs}
    op = made.get(graph.loss)
    while op is not None and op.name in _SCALING and len(op.inputs) == 1 and (before := made.get(op.inputs[0])):
        op = before
    return op.source if op is not None else None


def _accumulated(entries: list[Any], losses: Losses) -> int:
    """Where the gradients of several batches are added up: entries before those of the last batch. Each batch goes through the same calls
    on the same lines; 0 where there is one loss, or losses differ, as those of a GAN do."""
    if len(losses) < 2:
        return 0
    ends = [
        next((k + 1 for k, entry in enumerate(entries) if slot in entry.outputs), 0)
        for slot in (loss[0] for loss in losses)
    ]
    parts = [entries[first:last] for first, last in zip([0, *ends], ends, strict=False)]
    calls = [  # what is done to a batch before a model is called is on the tape of some only
        [_identity(entry) for entry in dropwhile(lambda entry: not isinstance(entry.call, nn.Module), part)]
        for part in parts
    ]
    return ends[-2] if calls[0] and all(part == calls[0] for part in calls) else 0


def _identity(entry: Any) -> tuple[Any, ...]:
    """The call and its place. A module is itself; a function may be looked up anew each time."""
    call = id(entry.call) if isinstance(entry.call, nn.Module) else getattr(entry.call, "__name__", "")
    return call, id(entry.code), entry.instruction


def _named(value: Value) -> Value:
    """Where no variable holds a value any more: what it is."""
    if value.name or not (value.into_model or value.origin == "given"):
        return value
    return replace(value, name=f"{'input' if value.into_model else 'given'} {list(value.shape)}")


def _learns(module: nn.Module) -> bool:
    """It is a model, or a part of one: a criterion has no parameters, and what it is given are outputs and targets."""
    return next(module.parameters(), None) is not None


class _random_kept:
    """Random generators are as before afterwards."""

    def __enter__(self) -> None:
        self._state, self._python = Drawn(), random.getstate()

    def __exit__(self, *problem: Any) -> None:
        self._state.put()
        random.setstate(self._python)
