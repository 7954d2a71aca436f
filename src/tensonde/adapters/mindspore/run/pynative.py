"""A training in PyNative mode: cells, gradients and losses as they run, reported to the session.

It belongs to one thread, the one that first calls a cell; calls from other threads pass unobserved and are counted. What is
compiled (GRAPH_MODE, `jit`) is seen from outside: see `compiled.py`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from math import nan
from threading import get_ident
from typing import Any

import numpy as np

from tensonde.adapters.mindspore.debugging.stops import Stops
from tensonde.adapters.mindspore.dump import Dump
from tensonde.adapters.mindspore.experiments.laboratory import Laboratory
from tensonde.adapters.mindspore.observers.facts import Facts
from tensonde.adapters.mindspore.run.compiled import Compiled
from tensonde.adapters.mindspore.run.entry import Entry, grow
from tensonde.adapters.mindspore.run.parameters import Parameters
from tensonde.adapters.mindspore.run.rest import Rest
from tensonde.adapters.mindspore.run.roster import Roster
from tensonde.adapters.mindspore.run.stepping import Stepping
from tensonde.adapters.mindspore.tensors import (
    dtype_name,
    hook,
    is_tensor,
    shape_of,
    surfaced,
    tensors_in,
    values_of,
)
from tensonde.adapters.mindspore.tracing import dispatch
from tensonde.adapters.mindspore.tracing.schedule import Tracing
from tensonde.adapters.mindspore.twins import TwinFeed
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.program.frames import user_frame, user_line
from tensonde.session.policy import Level
from tensonde.session.session import Session

CAPTURE_BYTES = 16 << 20
"""The largest tensor that is kept when a watchpoint hits."""


class PyNative:
    def __init__(self, session: Session, grad_on: Callable[[], bool]) -> None:
        """`grad_on` says whether what runs now is differentiated."""
        self.session = session
        self.block = session.block
        self.thread = get_ident()
        self._grad_on = grad_on
        self.stack: list[Entry] = []
        self.parameters = Parameters(self)
        self.roster = Roster(self)
        self.facts = Facts(self)
        self.level: int = session.policy.level
        self.step = 0
        self.phase = Phase.FORWARD
        self.set_phase(Phase.FORWARD)
        self.grad_on = False
        self.epoch = 0
        self.loss = nan
        """What was differentiated last, where it is a number; NaN else."""
        self.pass_again: Callable[[], None] | None = None
        """Runs the last pass again, while its parameters are as they were."""
        self.rates: list[Any] = []
        """Learning rates of the optimizer that steps, as they were when it was called."""
        self.other_threads = 0
        self.entry_pending = False
        self.unsupported: dict[str, str] = {}
        self.compiled: dict[str, str] = {}
        """What runs compiled, and what is watched of it."""
        self.graphs = Compiled(self)
        self.dump: Dump | None = None
        self.rest = Rest(self)
        self.stops = Stops(self)
        self.tracing = Tracing(self)
        twin = session.options.twin
        self.twin = TwinFeed(twin, self) if twin is not None else None
        if self.twin is not None and self.twin.twin.seeded:
            dispatch.draw = self.twin.drawn
        self._dataset: weakref.ref[Any] | None = None
        self.laboratory = Laboratory(self)
        self.stepping = Stepping(self)
        session.on_nonfinite = self._nonfinite
        session.gate.changed = self.refresh
        session.on_stop = self.stops.hit
        session.capture = self._capture
        self.refresh()

    @property
    def wanted(self) -> bool:
        """Cells are to be looked at in this step."""
        return (
            self.level > Level.SENTINEL
            or self.tracing.tracer is not None
            or self.stops.inputs_wanted
            or (self.dump is not None and self.dump.on)
        )

    @property
    def light(self) -> bool:
        return self.rest.asleep or self.session.policy.level < Level.SENTINEL

    # -- cells -----------------------------------------------------------------------------------

    def enter(self, cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        """A cell is about to run."""
        if not self.stack:
            self._enter_root(cell)
        entry = self.roster.of(cell)
        if not self.stack:
            self.facts.root_called(entry, cell, args, kwargs)
        if self.stops.inputs_wanted:
            self.stops.entering(entry, args, kwargs)
        return entry

    def _enter_root(self, cell: Any) -> None:
        if self.phase is Phase.BACKWARD:  # recomputed
            return
        self.forward_begins()
        self.grad_on = self._grad_on()
        if self.grad_on:
            self.session.steps.begun = True
        if self.phase is not Phase.FORWARD:
            self.set_phase(Phase.FORWARD)
        entry = self.roster.of(cell)
        if self.twin is not None:
            self.twin.weights()
        if self.tracing.tracer is not None:
            self.tracing.tracer.weigh("before", [(name, held, held) for name, held in self.parameters.live()])
        whereabouts = self.session.whereabouts
        if whereabouts.is_news(self.step, entry.name):
            frame = user_frame(sys._getframe(1))
            if frame is not None:
                whereabouts.called(self.step, entry.name, frame.f_code.co_filename, frame.f_lineno)
        if self.entry_pending:
            self.entry_pending = False
            self.stops.stop("entry")

    def forward_begins(self) -> None:
        """For want of an optimizer, this may be where the next step begins."""
        if self.session.steps.before_forward():
            self.stepping.finish()

    def left(self, entry: Entry, out: Any) -> None:
        """A cell gave `out`."""
        if entry.broken or self.phase is Phase.BACKWARD:
            return
        if not self.grad_on:
            # Evaluation in between: one look a step is enough, and it must not crowd out the training.
            if entry.eval_step == self.step:
                return
            entry.eval_step = self.step
        if self.level == Level.WATCHED and entry.seen and not entry.watched:
            return
        if entry.step != self.step:
            entry.step = self.step
            entry.calls = 0
        call = entry.calls
        entry.calls = call + 1
        tensors = [out] if is_tensor(out) else tensors_in(out)
        sites = entry.sites[call] if call < len(entry.sites) else grow(self.session, entry, call, tensors)
        if len(sites) < len(tensors) and call < len(entry.sites):
            sites = grow(self.session, entry, call, tensors)
        for tensor, (out_site, grad_site) in zip(tensors, sites, strict=False):
            self.passed(out_site, tensor, call)
            if grad_site is not None and self.grad_on:
                self.on_gradient(tensor, grad_site, call)

    def on_gradient(self, tensor: Any, site: int, call: int) -> None:
        """Looks at the gradient of this tensor when it comes."""
        step = self.step

        def arrived(gradient: Any) -> None:
            if self.step != step or self.thread != get_ident() or not is_tensor(gradient):
                return
            mark = self.session.clock()
            try:
                self.passed(site, gradient, call)
            except Exception as problem:
                self.contain("observing a gradient", problem)
            self.session.spent_since(mark)

        hook(tensor, arrived)

    def passed(self, site: int, tensor: Any, call: int = 0) -> None:
        """A tensor passes a site: it is digested, kept if somebody may ask for it, and stopped at if somebody wants that."""
        stops = self.stops
        if stops.keeping:
            stops.kept.put(site, tensor)  # first, so that a hit can show it
        self.add(site, tensor, call)
        if stops.keeping:
            stops.at(site, tensor, call)

    def add(self, site: int, tensor: Any, call: int = 0) -> int:
        """Digests a tensor, acting on hits where asked to. -1, and told in the coverage: it has no values."""
        array = tensor if isinstance(tensor, np.ndarray) else values_of(tensor)
        if array is None:
            self.unsupported[self.session.sites[site].address] = "has no values in memory"
            return -1
        return self.session.observe(site, array, call)

    def give_up(self, entry: Entry, problem: Exception) -> None:
        """What failed once would fail at every call."""
        entry.broken = True
        self.unsupported[entry.name] = f"observing it failed: {type(problem).__name__}"

    def contain(self, where: str, problem: Exception) -> None:
        """Our failures stay ours; an op of the program that failed behind it is the program's to hear about."""
        if surfaced(problem):
            raise problem
        self.session.guard.contain(where, problem)

    # -- losses and the backward pass ------------------------------------------------------------

    def backward_begins(self, loss: Any, *, trains: bool = True) -> Phase:
        """Returns the phase to come back to. A loss of several values that `trains` goes by its mean, as MindSpore's own LossMonitor shows it."""
        before = self.phase
        given = tensors_in(loss)[:1]
        for tensor in given:
            values = values_of(tensor)
            several = trains and values is not None and values.size > 1
            shown = np.array(values.mean()) if several and values is not None else tensor
            site = self.session.site_ids.get(("loss", Role.VALUE, None))
            if site is None:
                site = self.session.site(
                    "loss", Role.VALUE, Kind.LOSS, shape=shape_of(shown), dtype=dtype_name(tensor), source=user_line()
                )
            self.loss = float(values.mean()) if values is not None and (several or values.size == 1) else nan
            self.passed(site, shown)
            if self.dump is not None:
                self.dump.loss(tensor)
        self.set_phase(Phase.BACKWARD)
        return before

    def backward_ends(self, before: Phase) -> None:
        self.set_phase(before)
        self.session.steps.after_backward()

    def gradients(self, weights: Any, out: Any, loss: Any) -> None:
        """A backward pass of `loss` gave `out`: those of the weights come last."""
        held = list(weights) if isinstance(weights, list | tuple) else [weights] if is_tensor(weights) else []
        given = tensors_in(out)
        if held and len(given) >= len(held):
            self.parameters.arrived(held, given[-len(held) :])
            self.facts.differentiated(held, loss, given[-len(held) :])
            if self.tracing.tracer is not None:
                self.tracing.tracer.arrived(held, given[-len(held) :])

    def set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.block.phase = int(phase)

    def epoch_begins(self, dataset: Any) -> None:
        """The first data set that the training iterates is the one whose passes are epochs."""
        if self._dataset is None or self._dataset() is None:
            self._dataset = weakref.ref(dataset)
        if self._dataset() is dataset:
            self.epoch += 1
            self.session.note("epoch", epoch=self.epoch, step=self.step)

    def bring_up_to_date(self) -> None:
        """Writes all that is known until now. Does nothing in another thread, where the training may be under way."""
        if self.thread != get_ident():
            return
        try:
            self.session.flush()
            self.session.writer.flush()
            self.facts.write()
        except Exception as problem:
            self.contain("writing the recording", problem)

    def refresh(self) -> None:
        """Watchpoints, breakpoints or the plan changed."""
        session = self.session
        for entry in list(self.roster.entries.values()):
            entry.sites = []
            entry.seen = False
        session.policy.has_watched = any(
            session.user_watched(site) for site in session.sites if site.kind is Kind.MODULE
        )
        self.stops.refresh()
        self.parameters.plans.clear()
        if self.stops.whole:
            self.level = Level.FULL
        self.stepping.restful = (
            not session.immediate
            and not session.has_user_watchpoints
            and (session.gate.light or not self.stops.debugging)
            and self.dump is None
        )
        self.rest.wake()

    def _nonfinite(self, site: int) -> None:
        self.tracing.alarm(site)

    def _capture(self, site: Site, tensor: Any, moment: Moment) -> None:
        """Keeps the tensor that hit, if it is not too large."""
        array = tensor if isinstance(tensor, np.ndarray) else values_of(tensor)
        if array is not None and array.nbytes <= CAPTURE_BYTES:
            plain = np.ascontiguousarray(array)
            self.session.writer.value(site.address, moment, plain.tobytes(), plain.dtype.name, plain.shape)

    def detach(self) -> None:
        """Nothing of Tensonde's stays on MindSpore's stacks. May be called twice."""
        self.tracing.end()
        self.stops.end()
        self.graphs.export.close()
        dispatch.draw = None
