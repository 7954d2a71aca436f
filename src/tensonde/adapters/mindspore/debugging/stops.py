"""Where a training may stop: at cells, ops, gradients, source lines and step ends, forward and backward.

While a debugger is attached, the tensors of this step and of the one before are kept, so that any site can be printed and
compared; the memory for that is bounded.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from tensonde.adapters.lines import LineTrace
from tensonde.adapters.mindspore.debugging.kept import Kept
from tensonde.adapters.mindspore.debugging.ops import OpStops
from tensonde.adapters.mindspore.run.entry import Entry
from tensonde.adapters.mindspore.tensors import dtype_name, is_floating, shape_of, tensors_in
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role
from tensonde.model.stop import Reason, Stop
from tensonde.program.frames import frame_line, user_frame, user_line

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

QUICK_NS = 1_000_000_000
"""Steps shorter than this are worth one more, so that a pause has everything at hand."""
OBSERVED_BY_NOBODY = -1
"""No thread has this id."""


class Stops:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self.gate = training.session.gate
        self.kept = Kept()
        self.ops = OpStops(self)
        self.lines = LineTrace(self.gate, lambda: training.thread, self._names, self.hit)
        self.debugging = False
        self.keeping = False
        self.attentive = False
        self.whole = False
        """Every cell must be seen in this step, whatever the budget says."""
        self.inputs_wanted = False

    def refresh(self) -> None:
        self.debugging = self.gate.controller is not None
        self.keeping = self.gate.keeping
        self.attentive = self.gate.attentive
        self.whole = self.attentive or (self.keeping and self.gate.light)
        watched_inputs = any(
            ":in" in point.sites or ":grad_in" in point.sites or ":*" in point.sites
            for point in self.training.session.engine.watchpoints
            if point.origin == "user"
        )
        self.inputs_wanted = self.keeping or watched_inputs
        if not self.keeping:
            self.kept.clear()
        self.ops.activate(self.gate.wants_ops)
        self.lines.activate(bool(self.gate.lines) and self.debugging)

    def end(self) -> None:
        self.ops.activate(False)

    def _names(self) -> dict[str, Any]:
        """What the condition of a line may name, beside the program's own."""
        training = self.training
        return {
            "step": training.session.steps.step,
            "epoch": training.epoch,
            "rank": training.session.rank,
            "phase": str(training.phase),
            "loss": training.loss,
        }

    # -- what passes -----------------------------------------------------------------------------

    def at(self, site: int, tensor: Any, call: int = 0) -> None:
        """The training passes this site: stops if somebody wants it."""
        if not (self.attentive or self.gate.pausing):
            return
        found = self.gate.why(self.training.session.sites[site])
        if found is not None:
            reason, breakpoint = found
            self.stop(reason, site, tensor, call, breakpoint)

    def entering(self, entry: Entry, args: Any, kwargs: Any) -> None:
        """A cell is about to run: its inputs, and the gradients of those."""
        training = self.training
        if training.phase is Phase.BACKWARD:
            return
        tensors = tensors_in((args, kwargs))
        for k, tensor in enumerate(tensors):
            index = k if len(tensors) > 1 else None
            training.passed(self._site(entry.name, Role.IN, Kind.MODULE, entry.type, tensor, index), tensor)
            if training.grad_on and is_floating(tensor):
                site = self._site(entry.name, Role.GRAD_IN, Kind.MODULE, entry.type, tensor, index)
                training.on_gradient(tensor, site, 0)

    def op(self, name: str, kind: str, out: Any) -> None:
        """An op gave `out`."""
        training = self.training
        tensors = tensors_in(out)
        for k, tensor in enumerate(tensors):
            index = k if len(tensors) > 1 else None
            training.passed(self._site(name, Role.OUT, Kind.OP, kind, tensor, index), tensor)
            if training.grad_on and is_floating(tensor):
                training.on_gradient(tensor, self._site(name, Role.GRAD, Kind.OP, kind, tensor, index), 0)

    def _site(self, name: str, role: Role, kind: Kind, type: str, tensor: Any, index: int | None) -> int:
        session = self.training.session
        known = session.site_ids.get((name, role, index))
        if known is not None:
            return known
        return session.site(
            name, role, kind, index=index, type=type,
            shape=shape_of(tensor), dtype=dtype_name(tensor), source=user_line(),
        )  # fmt: skip

    def end_of_step(self) -> None:
        if not self.debugging:
            return
        session, parameters = self.training.session, self.training.parameters
        if self.keeping:
            self.kept.turn(parameters, session.steps.step)
            self.ops.new_step()
        policy, kept = session.policy, self.keeping
        reason = self.gate.end_of_step(session.steps.step, quick=policy.bare_ns <= QUICK_NS * policy.counted)
        if reason is not None:
            self.stop(reason)
        if self.keeping and not kept:  # from here on: what is changed now needs its value before
            self.kept.turn(parameters, session.steps.step)

    # -- stopping --------------------------------------------------------------------------------

    def hit(self, stop: Stop) -> None:
        """The engine's hits, or a line, ask for a stop."""
        if self.debugging and self.training.thread != OBSERVED_BY_NOBODY:
            self._enter(stop)

    def stop(
        self, reason: Reason, site: int | None = None, tensor: Any = None, call: int = 0, breakpoint: int | None = None
    ) -> None:
        session = self.training.session
        moment = Moment(session.steps.step, self.training.phase, call)
        where = session.sites[site] if site is not None else None
        self._enter(Stop(reason, moment, where, tensor, breakpoint=breakpoint))

    def _enter(self, bare: Stop) -> None:
        training = self.training
        inside = training.graphs.taps.inside
        frame = None if inside else bare.frame or user_frame(sys._getframe(2))
        elsewhere = inside or training.phase is Phase.BACKWARD  # the line that runs now says nothing there
        source = bare.site.source if elsewhere and bare.site is not None else frame_line(frame)
        modules = tuple(entry.name for entry in training.stack)
        stop = Stop(
            bare.reason, bare.moment, bare.site, bare.tensor, modules, source, frame, bare.hits, bare.breakpoint
        )
        if not inside and (bare.reason == "entry" or not self.keeping):
            self.kept.step = training.session.steps.step
            self.kept.snapshot(training.parameters)
        if bare.site is not None and bare.tensor is not None and not self.keeping:
            self.kept.put(bare.site.id, bare.tensor)
        # What the user calls from the debugger (a cell, in pdb) is not part of the training.
        thread, strangers = training.thread, training.other_threads
        training.thread = OBSERVED_BY_NOBODY
        try:
            plan = self.gate.stop(stop, time.perf_counter_ns)
        finally:
            training.thread, training.other_threads = thread, strangers
        if plan.kind == "quit":
            training.session.end("asked to quit", code=0)
