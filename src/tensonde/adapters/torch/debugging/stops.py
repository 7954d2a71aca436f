"""Where an eager training may stop: at modules, ops, gradients, source lines and step ends, forward and backward.

While a debugger is attached, taps also keep the tensors of this step and of the one before, so that
any site can be printed and compared; the memory for that is bounded.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from torch import Tensor

from tensonde.adapters.lines import LineTrace
from tensonde.adapters.torch.debugging.kept import Kept
from tensonde.adapters.torch.debugging.ops import OpMode
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.run.record import ModuleRecord, Tap
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.hooks import hook
from tensonde.adapters.torch.tensors import device_name, dtype_name, shape_of, tensors_in
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Address, Kind, Role
from tensonde.model.stop import Reason, Stop
from tensonde.program.frames import frame_line, user_frame, user_line

QUICK_NS = 1_000_000_000
"""Steps shorter than this are worth one more, so that a pause has everything at hand."""
OBSERVED_BY_NOBODY = -1
"""No thread has this id."""


class Stops:
    def __init__(self, state: RunState, digests: Digests) -> None:
        self.state = state
        self._digests = digests
        self.gate = state.session.gate
        self.kept = Kept()
        self.ops = OpMode(self)
        self.lines = LineTrace(self.gate, lambda: state.thread, self._names, self.hit)
        self.debugging = False
        self.keeping = False
        self.attentive = False
        self.whole = False
        """Every module must be seen in this step, whatever the budget says."""
        self.inputs_wanted = False
        self.changes = 0
        """How often a debugger set a value."""
        self.entry_pending = False
        """The training is to stop before the first module runs."""
        self.inside: tuple[str, ...] | None = None
        """The module whose node of a compiled graph runs now."""

    def refresh(self) -> None:
        self.debugging = self.gate.controller is not None
        self.keeping = self.gate.keeping
        self.attentive = self.gate.attentive
        self.whole = self.attentive or (self.keeping and self.gate.light)
        watched_inputs = any(
            ":in" in point.sites or ":grad_in" in point.sites or ":*" in point.sites
            for point in self.state.session.engine.watchpoints
            if point.origin == "user"
        )
        self.inputs_wanted = self.keeping or watched_inputs
        if not self.keeping:
            self.kept.clear()
        self.ops.activate(self.gate.wants_ops)
        self.lines.activate(bool(self.gate.lines) and self.debugging)

    # -- what passes -----------------------------------------------------------------------------

    def tap(self, site: int, call: int) -> Tap:
        digests, guard = self._digests, self.state.session.guard

        def tap(tensor: Any) -> None:
            try:
                with unseen():
                    if not self.keeping:
                        digests.add(site, tensor, call)
                        return
                    self.kept.put(site, tensor)  # first, so that a hit can show it
                    digests.add(site, tensor, call)
                    self.at(site, tensor, call, kept=True)
            except Exception as problem:
                guard.contain("a debugger tap", problem)

        return tap

    def keep(self, site: int, tensor: Any) -> None:
        if self.keeping:
            self.kept.put(site, tensor)

    def at(self, site: int, tensor: Any, call: int = 0, *, kept: bool = False) -> None:
        """The training passes this site: stops if a stop is wanted here."""
        if not self.keeping:
            return
        if not kept:
            self.kept.put(site, tensor)
        if not (self.attentive or self.gate.pausing):
            return
        found = self.gate.why(self.state.session.sites[site])
        if found is not None:
            reason, breakpoint = found
            self.stop(reason, site, tensor, call, breakpoint)

    def entering(self, entry: ModuleRecord, args: Any, kwargs: Any, *, gradients: bool = True) -> None:
        """A module is about to run: its inputs, and the gradients of those."""
        state = self.state
        if state.opaque or state.phase is Phase.BACKWARD:
            return
        tensors = tensors_in((args, kwargs))
        for k, tensor in enumerate(tensors):
            index = k if len(tensors) > 1 else None
            known = state.session.site_ids.get((entry.name, Role.IN, index))
            if known is None:
                known = self._site(entry.name, Role.IN, Kind.MODULE, entry.type, tensor, index)
            self.tap(known, 0)(tensor)
            if gradients and state.grad_on and tensor.requires_grad and not tensor.is_leaf:
                site = self._site(entry.name, Role.GRAD_IN, Kind.MODULE, entry.type, tensor, index)
                hook(tensor, self.tap(site, 0))

    def op(self, name: str, out: Any) -> None:
        """An op of the function API gave `out`."""
        state = self.state
        if state.opaque or state.phase is Phase.BACKWARD:
            return
        tensors = [tensor for tensor in tensors_in(out) if type(tensor) is Tensor]
        for k, tensor in enumerate(tensors):
            index = k if len(tensors) > 1 else None
            site = self._site(name, Role.OUT, Kind.OP, Address.of(name).op, tensor, index)
            self.tap(site, 0)(tensor)
            if tensor.requires_grad and not tensor.is_leaf and state.grad_on:
                grad = self._site(name, Role.GRAD, Kind.OP, state.session.sites[site].type, tensor, index)
                hook(tensor, self.tap(grad, 0))

    def _site(self, name: str, role: Role, kind: Kind, type: str, tensor: Tensor, index: int | None) -> int:
        known = self.state.session.site_ids.get((name, role, index))
        if known is not None:
            return known
        return self.state.session.site(
            name, role, kind, index=index, type=type,
            shape=shape_of(tensor), dtype=dtype_name(tensor), source=user_line(), device=device_name(tensor),
        )  # fmt: skip

    def at_entry(self) -> None:
        """A root is about to run."""
        if self.entry_pending:
            self.entry_pending = False
            self.stop("entry")

    def end_of_step(self) -> None:
        if not self.debugging:
            return
        session = self.state.session
        if self.keeping:
            self.kept.turn(self.state.parameters, session.steps.step)
            self.ops.new_step()
        policy, kept = session.policy, self.keeping
        reason = self.gate.end_of_step(session.steps.step, quick=policy.bare_ns <= QUICK_NS * policy.counted)
        if reason is not None:
            self.stop(reason)
        if self.keeping and not kept:  # from here on: what is changed now needs its value before
            self.kept.turn(self.state.parameters, session.steps.step)

    def _names(self) -> dict[str, Any]:
        """For conditions of line breakpoints. `loss` is the last one that was seen, NaN before the first."""
        state = self.state
        site = state.session.site_ids.get(("loss", Role.VALUE, None))
        seen = self.kept.get(site) if site is not None else None
        loss = float(seen.tensor) if seen is not None and seen.tensor.numel() == 1 else float("nan")
        return {
            "step": state.session.steps.step,
            "epoch": state.epoch,
            "rank": state.session.rank,
            "phase": str(state.phase),
            "loss": loss,
        }

    # -- stopping --------------------------------------------------------------------------------

    def hit(self, stop: Stop) -> None:
        """The engine's hits ask for a stop."""
        if self.debugging and self.state.thread != OBSERVED_BY_NOBODY:
            self._enter(stop)

    def stop(
        self, reason: Reason, site: int | None = None, tensor: Any = None, call: int = 0, breakpoint: int | None = None
    ) -> None:
        session = self.state.session
        moment = Moment(session.steps.step, self.state.phase, call)
        where = session.sites[site] if site is not None else None
        self._enter(Stop(reason, moment, where, tensor, breakpoint=breakpoint))

    def _enter(self, bare: Stop) -> None:
        state = self.state
        frame = bare.frame or user_frame(sys._getframe(2))
        backward = state.phase is Phase.BACKWARD
        at_node = backward or self.inside is not None  # the line that runs now says nothing there
        source = bare.site.source if at_node and bare.site is not None else frame_line(frame)
        modules = (*(entry.name for entry in state.stack), *(self.inside or ()))
        stop = Stop(
            bare.reason, bare.moment, bare.site, bare.tensor, modules, source, frame, bare.hits, bare.breakpoint
        )
        if bare.reason == "entry" or not self.keeping:
            self.kept.step = state.session.steps.step
            self.kept.snapshot(state.parameters)
        if bare.site is not None and bare.tensor is not None and not self.keeping:
            self.kept.put(bare.site.id, bare.tensor)
        # What the user calls from the debugger (a module, in pdb) is not part of the training.
        thread, strangers = state.thread, state.other_threads
        state.thread = OBSERVED_BY_NOBODY
        try:
            with self.ops.paused():
                plan = self.gate.stop(stop, time.perf_counter_ns)
        finally:
            state.thread, state.other_threads = thread, strangers
        if plan.kind == "quit":
            state.session.end("asked to quit", code=0)
