"""Watches one training: makes the parts that observe it, and passes on what the seams see, in a fixed order.

Hooks never change a value and never keep a tensor alive.
"""

from __future__ import annotations

import sys
import weakref
from math import nan
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.digests.device.clock import device_clock
from tensonde.adapters.torch.digests.modules import Taps
from tensonde.adapters.torch.digests.parameters import ParameterDigests
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.experiments.laboratory import Laboratory
from tensonde.adapters.torch.memory.watch import MemoryWatch
from tensonde.adapters.torch.observers.collectives import MOST_FRAMES
from tensonde.adapters.torch.observers.facts import Facts
from tensonde.adapters.torch.postmortem.latest import LatestCall
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.run.accounting import Accounting
from tensonde.adapters.torch.run.attention import Attention
from tensonde.adapters.torch.run.by_hand import ByHand
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.adapters.torch.run.rest import Rest
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import forget, settle, unseen
from tensonde.adapters.torch.seams.hooks import hook
from tensonde.adapters.torch.tensors import bytes_of, device_name, dtype_name, raw_bytes, shape_of, tensors_in
from tensonde.adapters.torch.tracing.weights import When
from tensonde.adapters.torch.transforms import functorch_level
from tensonde.adapters.torch.twins import TwinFeed
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.program.frames import let_go, user_frame, user_line, user_path, user_place, way_of
from tensonde.session.division import divisions
from tensonde.session.policy import Level
from tensonde.session.session import Session
from tensonde.session.stillness import Stillness

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.graphs import Graphs
    from tensonde.adapters.torch.dumping.dump import Dump

_grad_enabled = torch.is_grad_enabled

MOST_LOSSES = 1024
"""Losses of one step that are asked what they were divided by."""
CAPTURE_BYTES = 16 << 20
"""The largest tensor that is kept when a watchpoint hits."""


class Watcher:
    def __init__(self, session: Session) -> None:
        session.block.threads = torch.get_num_threads()
        self.session = session
        self.state = state = RunState(session)
        self.accounting = Accounting(hook)
        self._entries = state.roster.entries
        twin = session.options.twin
        self.twin = TwinFeed(twin, state) if twin is not None else None
        self.digests = Digests(state)
        self.stops = Stops(state, self.digests)
        self.parameters = ParameterDigests(state, self.digests, self.stops)
        self._taps = Taps(session, self.digests, self.stops)
        self.by_hand = ByHand(state, self.parameters)
        self.facts = Facts(state, self.by_hand)
        self.latest = LatestCall()
        self.compiled: Graphs | None = None
        """None until something is compiled. See `graphs`."""
        self.rest = Rest(state, self.digests, self.parameters, self.facts)
        self.replay = Replay(state, self.digests, self.stops, self.twin)
        self.tracing = self.replay.tracing
        self.laboratory = Laboratory(state, self.replay)
        self.memory = MemoryWatch(state, self.replay)
        self.attention = Attention(
            state, self.stops, self.replay, self.facts, self.latest, self.rest, self.laboratory.steps
        )
        self.dump: Dump | None = None
        self.stillness: Stillness | None = None
        self._divided: list[list[int]] = []
        """For each loss of this step: what it was divided by before `backward`."""
        self._calls_at_mark: dict[str, int] = {}
        self._loader: weakref.ref[Any] | None = None
        self._connect()
        self.refresh()

    def _connect(self) -> None:
        """What parts and the session tell others, they tell through these."""
        session = self.session
        self.by_hand.step_ended = lambda behind: self.finish_step(behind=behind)
        self.by_hand.marked = self.mark
        self.by_hand.updated = self.facts.updated_by_hand
        self.facts.settle = self.rest.settle
        self.facts.answers = self.laboratory.facts
        self.facts.evaluated = self.laboratory.evaluations.gave
        self.facts.model_runs = self.laboratory.evaluations.rest
        self.facts.memory = self.memory.facts
        self.replay.asked_of = lambda step: self.laboratory.wants(step) or self.memory.wants(step)
        self.replay.retrace = lambda why: self.compiled.retrace(why) if self.compiled is not None else None
        self.replay.tape.forward_begins = self.forward_begins
        self.replay.tell_unseen = self.rest.tell
        session.on_nonfinite = self._nonfinite
        session.gate.changed = self.refresh
        session.on_stop = self.stops.hit
        session.capture = self.capture
        session.settle = self.digests.settle
        session.on_late = self.replay.late.arrived

    @property
    def graphs(self) -> Graphs:
        """What is compiled in this training. Made, and imported, when it is first asked for."""
        if self.compiled is None:
            from tensonde.adapters.torch.compiled.graphs import Graphs

            self.compiled = Graphs(self.state, self.digests, self.stops)
            self.compiled.dump = self.dump
            self.compiled.refresh()
        return self.compiled

    def dump_into(self, dump: Dump) -> None:
        """From now on, tensors are also dumped."""
        self.dump = self.attention.dump = dump
        if self.compiled is not None:
            self.compiled.dump = dump
        self.refresh()

    # -- modules ---------------------------------------------------------------------------------

    def module_entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModuleRecord:
        """A module is about to run."""
        state = self.state
        if not state.stack:
            self.root_entered(module)
            self.facts.root_called(module, args, kwargs)
            self.latest.note(module, args, kwargs)
            self.rest.root_called()
        entry = self._entries.get(id(module)) or state.roster.meet(module, state.stack, state.step)
        if state.step == 0 and state.grad_on and not _grad_enabled():
            self.facts.inside.without_grad(entry)
        if self.stops.inputs_wanted:
            self.stops.entering(entry, args, kwargs)
        elif not state.stack and state.level == Level.FULL and state.grad_on:
            self.stops.entering(entry, args, kwargs, gradients=False)  # what comes from outside: batches, targets
        return entry

    def root_entered(self, module: nn.Module) -> None:
        """A module is called and no other one is running."""
        state = self.state
        if state.phase is Phase.BACKWARD:
            return
        self.forward_begins()
        if self.session.world > 1:
            state.came_from = way_of(user_path(sys._getframe(1), MOST_FRAMES))
        state.grad_on = _grad_enabled()
        if state.grad_on:
            self.session.steps.begun = True
        state.opaque = functorch_level() is not None
        if state.phase is not Phase.FORWARD:
            state.set_phase(Phase.FORWARD)
        if id(module) not in self._entries:
            state.roster.meet_root(module)
        self._note_whereabouts(module)
        if self.tracing.tracer is not None:
            if self.twin is not None:
                self.twin.weights()
            self.weigh("before")
        self.stops.at_entry()

    def root_left(self) -> None:
        """A root has returned or raised."""
        if self.facts.root_left():
            self.attention.settle()

    def forward_begins(self) -> None:
        """For want of an optimizer, this may be where the next step begins."""
        if self.session.steps.before_forward():
            with unseen():
                self.by_hand.forward_begins()

    def _note_whereabouts(self, root: nn.Module) -> None:
        """Should the process be killed from here on, this is what ran last."""
        entry, whereabouts = self._entries.get(id(root)), self.session.whereabouts
        if entry is not None and whereabouts.is_news(self.state.step, entry.name):
            frame = user_frame(sys._getframe(1))
            if frame is not None:
                whereabouts.called(self.state.step, entry.name, frame.f_code.co_filename, frame.f_lineno)

    def module_left(self, entry: ModuleRecord, out: Any) -> None:
        """A module gave `out`. Called for every call while something is wanted of modules."""
        state = self.state
        if entry.broken:
            return
        if state.opaque:
            state.unsupported[entry.name] = "runs inside torch.func"
            return
        if self.digests.device.used and capturing():
            state.unsupported[entry.name] = "runs inside of a captured graph"
            return
        if state.phase is Phase.BACKWARD:
            self.recomputed(entry, out)
            return
        if not state.grad_on:
            # Evaluation in between: one look a step is enough, and it must not crowd out the training.
            if entry.eval_step == state.step:
                return
            entry.eval_step = state.step
        if state.level == Level.WATCHED and entry.seen and not entry.watched:
            return
        if entry.step != state.step:
            entry.step = state.step
            entry.calls = 0
        call = entry.calls
        entry.calls = call + 1
        self.accounting.calls += 1
        if type(out) is Tensor:
            taps = entry.taps[call] if call < len(entry.taps) else self._taps.make_taps(entry, call, (out,))
            if not taps:
                return
            out_tap, grad_tap = taps[0]
            if out_tap is not None:
                out_tap(out)
            if grad_tap is not None and out.requires_grad and state.grad_on and not out.is_leaf:
                entry.hook_step = state.step
                self.accounting.hooks += 1
                hook(out, grad_tap)
            return
        tensors = tensors_in(out)
        taps = entry.taps[call] if call < len(entry.taps) else []
        if len(taps) < len(tensors):
            taps = self._taps.make_taps(entry, call, tensors)
        for tensor, (out_tap, grad_tap) in zip(tensors, taps, strict=False):
            if out_tap is not None:
                out_tap(tensor)
            if grad_tap is not None and tensor.requires_grad and state.grad_on and not tensor.is_leaf:
                entry.hook_step = state.step
                self.accounting.hooks += 1
                hook(tensor, grad_tap)

    def give_up(self, entry: ModuleRecord, problem: Exception) -> None:
        """What failed once would fail at every call."""
        entry.broken = True
        self.state.unsupported[entry.name] = f"observing it failed: {type(problem).__name__}"

    def recomputed(self, entry: ModuleRecord, out: Any) -> None:
        """Activation checkpointing runs the forward again: its values were seen, its gradients maybe not."""
        if entry.hook_step == self.state.step and entry.calls:
            return
        for tensor, (_, grad_tap) in zip(tensors_in(out), entry.taps[0] if entry.taps else (), strict=False):
            if grad_tap is not None and tensor.requires_grad and not tensor.is_leaf:
                hook(tensor, grad_tap)

    # -- losses and the backward pass ------------------------------------------------------------

    def backward_begins(self, tensors: Any, *, accumulates: bool = True) -> Phase:
        """Returns the phase to come back to. `accumulates`: gradients go into `.grad`, as `torch.autograd.grad` does not do."""
        state = self.state
        before = state.phase
        if before is Phase.BACKWARD:  # reentrant checkpointing differentiates parts of its own: no losses
            return before
        if not self.session.steps.has_optimizer:
            self.by_hand.pass_begins()
        if not state.light:
            self.facts.before_backward(tensors)
        for tensor in tensors_in(tensors)[:1]:
            tensor = getattr(tensor, "_tensonde_unscaled", tensor)
            site = self.session.site_ids.get(("loss", Role.VALUE, None))
            if site is None:
                site = self.session.site(
                    "loss", Role.VALUE, Kind.LOSS,
                    shape=shape_of(tensor), dtype=dtype_name(tensor), source=user_line(), device=device_name(tensor),
                )  # fmt: skip
            if len(self._divided) < MOST_LOSSES:
                self._divided.append([product for product, _ in divisions(tensor)])
            self.stops.keep(site, tensor)  # first, so that a hit can show it
            row = self.digests.add(site, tensor)
            known = row >= 0 and tensor.numel() == 1 and tensor.device.type == "cpu"
            state.loss = float(self.session.rows[row]["mean"]) if known else nan
            self.stops.at(site, tensor, kept=True)
            if self.dump is not None and self.dump.on:
                self.dump.loss(tensor)
        state.set_phase(Phase.BACKWARD)
        if self.session.world > 1 and accumulates:
            place = user_place(sys._getframe(1))
            self.facts.course.passes(place)
            self.facts.replicas.pass_begins()
            self.facts.collectives.pass_begins()
        return before

    def backward_ends(self, before: Phase) -> None:
        state = self.state
        state.set_phase(before)
        self.facts.replicas.pass_ends()
        self.session.steps.after_backward()
        alone = before is not Phase.BACKWARD and not self.session.steps.has_optimizer
        if alone:
            self.by_hand.pass_ends()
        if state.light:
            return
        self.replay.tape.pause()
        self.weigh("raw")
        if before is not Phase.BACKWARD:
            self.facts.after_backward()
        if alone and self.dump is not None and self.dump.on:
            self.dump.gradients_alone()

    def weigh(self, when: When) -> None:
        """Takes down all parameters, where the step is traced."""
        if self.tracing.tracer is not None and not self.replay.active and not self.tracing.staged:
            self.tracing.tracer.weights.look(when, self.state.parameters.live())

    def epoch_begins(self, loader: Any) -> None:
        """The first loader that the training iterates is the one whose passes are epochs."""
        if self._loader is None or self._loader() is None:
            self._loader = weakref.ref(loader)
        if self._loader() is loader:
            self.state.epoch += 1
            self.session.note("epoch", epoch=self.state.epoch, step=self.state.step)
        else:
            self.rest.evaluation_begins()

    # -- steps -----------------------------------------------------------------------------------

    def mark(self) -> None:
        """The step may turn out to have ended here (see `session/steps.py`)."""
        self.session.mark()
        self.digests.device.mark()
        if self.dump is not None:
            self.dump.mark()
        self._calls_at_mark = {
            entry.name: entry.calls for entry in list(self._entries.values()) if entry.step == self.state.step
        }

    def _count_anew(self) -> None:
        """The step ended at the mark: what was called since are the first calls of the next."""
        session, marked = self.session, self._calls_at_mark
        for entry in list(self._entries.values()):
            if entry.step == self.state.step:
                entry.calls -= marked.get(entry.name, 0)
                entry.step += 1
                entry.hook_step += entry.hook_step == self.state.step
        rows = session.since_mark()
        before = np.array(
            [marked.get(site.name, 0) if site.kind is Kind.MODULE else 0 for site in session.sites], dtype=np.int32
        )
        calls = np.maximum(rows["call"] - before[rows["site"]], 0)
        rows["call"] = np.where(rows["step"] == self.state.step, calls, rows["call"])
        for waiting in self.digests.device.since_mark():
            waiting.step += 1
            waiting.call = max(waiting.call - int(before[waiting.site]), 0)

    def finish_step(self, *, behind: bool = False, scalars: dict[str, float] | None = None) -> None:
        session, state = self.session, self.state
        if state.level == Level.FULL:
            self.parameters.digest_rest()
        if behind:
            self._count_anew()
        self.memory.step_ends()
        if state.level == Level.FULL or state.step < 2:
            let_go(sys._getframe(1))  # in other steps, observers do not read frames
        self.replay.finish_step(state.step, behind=behind)
        if self.compiled is not None:
            self.compiled.finish_step()
        if self.dump is not None:
            self.dump.finish_step(state.step + 1, behind=behind)
        stopped = session.gate.stopped_ns > 0
        session.cost_ns += self.accounting.finish_step(full=state.level == Level.FULL, stopped=stopped)
        session.losses_divided(self._divided if not behind else [])
        self._divided = []
        session.policy.may_rest = self.attention.may_rest()
        session.finish_step(behind=behind, scalars=scalars)
        if self.digests.device.used:
            session.on_device(device_clock)
            self.replay.late.looked_at[state.step] = self.rest.looked_at
            self.memory.history.step_ends(state.step)
            self.digests.poll()
        state.step = self.rest.looked_at = session.steps.step
        self.facts.finished_step(state.step)
        limit = session.options.steps
        if limit is not None and state.step >= limit:
            session.end(f"{limit} steps are done, as asked")
        state.level = Level.FULL if self.stops.whole else max(session.policy.level, Level.SENTINEL)
        self.stops.end_of_step()
        if self.digests.device.used:
            self.replay.late.look()
        settle()
        self.attention.choose(behind=behind)
        self.tracing.settle()

    def bring_up_to_date(self) -> None:
        """Writes all that is known so far: a reader waits, or nothing may happen for long. Does nothing in another thread,
        where the training may be under way."""
        if self.state.thread != get_ident():
            return
        try:
            if self.digests.device.used:
                self.digests.poll()
            self.session.flush()
            self.session.writer.flush()
            self.facts.write()
        except Exception as problem:
            self.session.guard.contain("writing the recording", problem)

    def _nonfinite(self, site: int) -> None:
        self.replay.alarm(site)
        self.rest.tell(self.state.step)

    def refresh(self) -> None:
        """Watchpoints, breakpoints or the plan changed: taps are made anew."""
        session = self.session
        for entry in list(self._entries.values()):
            entry.taps = []
            entry.seen = False
        session.policy.has_watched = any(
            session.user_watched(site) for site in session.sites if site.kind is Kind.MODULE
        )
        self.stops.refresh()
        if self.compiled is not None:
            self.compiled.refresh()
        self.parameters.plans.clear()
        self.attention.refresh()

    def detach(self) -> None:
        """The program ends: nothing of Tensonde's stays on torch's stacks. May be called twice, in a forked child too."""
        if self.stillness is not None:
            self.stillness.end()
        self.replay.end()
        forget()

    # -- values ----------------------------------------------------------------------------------

    def capture(self, site: Site, tensor: Any, moment: Moment) -> None:
        """Keeps the tensor that hit, if it is not too large."""
        if bytes_of(tensor) <= CAPTURE_BYTES:
            content, dtype, shape = raw_bytes(tensor)
            self.session.writer.value(site.address, moment, content, dtype, shape)
