"""The eager adapter: modules, gradients and losses as they run, reported to the session.

`Eager` belongs to one training thread (the one that first calls a module); calls from other threads pass
through unobserved and are counted. Hooks never change a value and never keep a tensor alive.
"""

from __future__ import annotations

import sys
import weakref
from math import nan
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tensonde.adapters.torch.compiled.graphs import Graphs
from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.digests.device import DeviceDigests
from tensonde.adapters.torch.digests.modules import Taps
from tensonde.adapters.torch.digests.parameters import Parameters
from tensonde.adapters.torch.dumping.dump import Dump
from tensonde.adapters.torch.observers.facts import Facts
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.latest import LatestCall
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.run.accounting import Accounting
from tensonde.adapters.torch.run.by_hand import ByHand
from tensonde.adapters.torch.run.entry import Entry
from tensonde.adapters.torch.run.rest import Rest
from tensonde.adapters.torch.run.roster import Roster
from tensonde.adapters.torch.seams.function_mode import forget, settle, unseen
from tensonde.adapters.torch.seams.hooks import hook
from tensonde.adapters.torch.seams.lifted import PATCHES
from tensonde.adapters.torch.tensors import (
    bytes_of,
    dtype_name,
    raw_bytes,
    shape_of,
    tensors_in,
    values_of,
    without_values,
)
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.adapters.torch.tracing.weights import When
from tensonde.adapters.torch.transforms import functorch_level as _functorch_level
from tensonde.adapters.torch.twins import TwinFeed
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.program.frames import user_frame, user_line
from tensonde.session.division import divisions
from tensonde.session.policy import Level
from tensonde.session.session import Session

_grad_enabled = torch.is_grad_enabled

MOST_LOSSES = 1024
"""Losses of one step that are asked what they were divided by."""
CAPTURE_BYTES = 16 << 20
"""The largest tensor that is kept when a watchpoint hits."""


class Eager:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.block = session.block
        self.block.threads = torch.get_num_threads()
        self.thread = get_ident()
        self.stack: list[Entry] = []
        self.roster = Roster(self)
        self.entries, self.roots = self.roster.entries, self.roster.roots
        self.meet, self.meet_root, self.adopt = self.roster.meet, self.roster.meet_root, self.roster.adopt
        self.grow = Taps(self).grow
        self.parameters = Parameters(self)
        self.facts = Facts(self)
        self.by_hand = ByHand(self)
        self.level: int = session.policy.level
        self.step = 0
        self.set_phase(Phase.FORWARD)
        self.grad_on = True
        self.opaque = False
        """Inside a function transform, where tensors are wrappers without values."""
        self.other_threads = 0
        self.optimizer_steps = 0
        self.epoch = 0
        self.divided: list[list[int]] = []
        """Of each loss of this step: what it was divided by before `backward`."""
        self.entry_pending = False
        self.idle = False
        """Nothing is wanted of modules in this step."""
        self.inside_idle = False
        """A root runs in such a step: modules need not even be looked at."""
        self.loss = nan
        """What was differentiated last, where it is a number that is at hand; NaN else."""
        self.light = False
        """Only the loss, the gradients and the parameters of this step are looked at, or nothing at all (`rest`)."""
        self.rest = Rest(self)
        self._restful = False
        options = session.options
        self._asked_for = [*options.save_steps, *(step for step in options.window if step > 1)]
        """Steps that must be seen: to be saved, traced, or the last."""
        if options.steps is not None:
            self._asked_for.append(options.steps - 1)
        self.accounting = Accounting(hook)
        self._calls_at_mark: dict[str, int] = {}
        self._loader: weakref.ref[Any] | None = None
        self.unsupported: dict[str, str] = {}
        self.latest = LatestCall()
        self.device = DeviceDigests()
        self.stops = Stops(self)
        self.tracer: Tracer | None = None
        """The trace that is under way."""
        self.twin = TwinFeed(session.options.twin, self) if session.options.twin is not None else None
        self.dump: Dump | None = None
        self.replay = Replay(self)
        self.graphs = Graphs(self)
        session.on_nonfinite = self._nonfinite
        session.gate.changed = self.refresh
        session.on_stop = self.stops.hit
        session.capture = self.capture
        session.settle = self.device.settle
        self.refresh()

    # -- modules ---------------------------------------------------------------------------------

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        """A module is about to run."""
        if not self.stack:
            self.enter_root(module)
            self.facts.root_called(module, args, kwargs)
            self.latest.note(module, args, kwargs)
            self.rest.root_called()
        entry = self.entries.get(id(module)) or self.meet(module)
        if self.step == 0 and self.grad_on and not _grad_enabled():
            self.facts.inside.without_grad(entry)
        if self.stops.inputs_wanted:
            self.stops.entering(entry, args, kwargs)
        elif not self.stack and self.level == Level.FULL and self.grad_on:
            self.stops.entering(entry, args, kwargs, gradients=False)  # what comes from outside: batches, targets
        return entry

    def enter_root(self, module: nn.Module) -> None:
        """A module is called and no other one is running."""
        if self.phase is Phase.BACKWARD:
            return
        self.forward_begins()
        self.grad_on = _grad_enabled()
        if self.grad_on:
            self.session.steps.begun = True
        self.opaque = _functorch_level() is not None
        if self.phase is not Phase.FORWARD:
            self.set_phase(Phase.FORWARD)
        if id(module) not in self.entries:
            self.meet_root(module)
        self._note_whereabouts(module)
        if self.tracer is not None:
            if self.twin is not None:
                self.twin.weights()
            self.weigh("before")
        if self.entry_pending:
            self.entry_pending = False
            self.stops.stop("entry")

    def forward_begins(self) -> None:
        """For want of an optimizer, this may be where the next step begins."""
        if self.session.steps.before_forward():
            with unseen():
                self.by_hand.forward_begins()

    def _note_whereabouts(self, root: nn.Module) -> None:
        """Should the process be killed from here on, this is what ran last."""
        entry, whereabouts = self.entries.get(id(root)), self.session.whereabouts
        if entry is not None and whereabouts.is_news(self.step, entry.name):
            frame = user_frame(sys._getframe(1))
            if frame is not None:
                whereabouts.called(self.step, entry.name, frame.f_code.co_filename, frame.f_lineno)

    def left(self, entry: Entry, out: Any) -> None:
        """A module gave `out`. Called for every call while something is wanted of modules."""
        if entry.broken:
            return
        if self.opaque:
            self.unsupported[entry.name] = "runs inside torch.func"
            return
        if self.phase is Phase.BACKWARD:
            self.recomputed(entry, out)
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
        self.accounting.calls += 1
        if type(out) is Tensor:
            taps = entry.taps[call] if call < len(entry.taps) else self.grow(entry, call, (out,))
            if not taps:
                return
            out_tap, grad_tap = taps[0]
            if out_tap is not None:
                out_tap(out)
            if grad_tap is not None and out.requires_grad and self.grad_on and not out.is_leaf:
                entry.hook_step = self.step
                self.accounting.hooks += 1
                hook(out, grad_tap)
            return
        tensors = tensors_in(out)
        taps = entry.taps[call] if call < len(entry.taps) else []
        if len(taps) < len(tensors):
            taps = self.grow(entry, call, tensors)
        for tensor, (out_tap, grad_tap) in zip(tensors, taps, strict=False):
            if out_tap is not None:
                out_tap(tensor)
            if grad_tap is not None and tensor.requires_grad and self.grad_on and not tensor.is_leaf:
                entry.hook_step = self.step
                self.accounting.hooks += 1
                hook(tensor, grad_tap)

    def give_up(self, entry: Entry, problem: Exception) -> None:
        """What failed once would fail at every call."""
        entry.broken = True
        self.unsupported[entry.name] = f"observing it failed: {type(problem).__name__}"

    def recomputed(self, entry: Entry, out: Any) -> None:
        """Activation checkpointing runs the forward again: its values were seen, its gradients maybe not."""
        if entry.hook_step == self.step and entry.calls:
            return
        for tensor, (_, grad_tap) in zip(tensors_in(out), entry.taps[0] if entry.taps else (), strict=False):
            if grad_tap is not None and tensor.requires_grad and not tensor.is_leaf:
                hook(tensor, grad_tap)

    def add(self, site: int, tensor: Any, call: int = 0) -> int:
        """Digests a tensor of any kind and device, acting on hits where asked to. -1, and told in the coverage: it has no values."""
        found = values_of(tensor)
        if found is None:
            self.unsupported[self.session.sites[site].address] = without_values(tensor)
            return -1
        if found.device.type != "cpu":
            return self.device.add(self.block, site, found, call)
        return self.session.observe(site, found, call)

    # -- losses and the backward pass ------------------------------------------------------------

    def backward_begins(self, tensors: Any) -> Phase:
        """Returns the phase to come back to."""
        before = self.phase
        if before is Phase.BACKWARD:  # reentrant checkpointing differentiates parts of its own: no losses
            return before
        if not self.session.steps.has_optimizer:
            self.by_hand.pass_begins()
        if not self.light:
            self.facts.before_backward(tensors)
        for tensor in tensors_in(tensors)[:1]:
            tensor = getattr(tensor, "_tensonde_unscaled", tensor)
            site = self.session.site_ids.get(("loss", Role.VALUE, None))
            if site is None:
                site = self.session.site(
                    "loss", Role.VALUE, Kind.LOSS,
                    shape=shape_of(tensor), dtype=dtype_name(tensor), source=user_line(),
                )  # fmt: skip
            if len(self.divided) < MOST_LOSSES:
                self.divided.append([product for product, _ in divisions(tensor)])
            row = self.add(site, tensor)
            known = row >= 0 and tensor.numel() == 1 and tensor.device.type == "cpu"
            self.loss = float(self.session.rows[row]["mean"]) if known else nan
            self.stops.at(site, tensor)
            if self.dump is not None and self.dump.on:
                self.dump.loss(tensor)
        self.set_phase(Phase.BACKWARD)
        return before

    def backward_ends(self, before: Phase) -> None:
        self.set_phase(before)
        self.session.steps.after_backward()
        alone = before is not Phase.BACKWARD and not self.session.steps.has_optimizer
        if alone:
            self.by_hand.pass_ends()
        if self.light:
            return
        self.replay.tape.pause()
        self.weigh("raw")
        if before is not Phase.BACKWARD:
            self.facts.after_backward()
        if alone and self.dump is not None and self.dump.on:
            self.dump.gradients_alone()

    def weigh(self, when: When) -> None:
        """Takes down all parameters, where the step is traced."""
        if self.tracer is not None and not self.replay.active and not self.replay.tracing.staged:
            self.tracer.weights.look(when, self.parameters.live())

    def set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.block.phase = int(phase)

    def epoch_begins(self, loader: Any) -> None:
        """The first loader that the training iterates is the one whose passes are epochs."""
        if self._loader is None or self._loader() is None:
            self._loader = weakref.ref(loader)
        if self._loader() is loader:
            self.epoch += 1
            self.session.note("epoch", epoch=self.epoch, step=self.step)
        else:
            self.rest.evaluation_begins()

    # -- steps -----------------------------------------------------------------------------------

    def mark(self) -> None:
        """The step may turn out to have ended here (see `session/steps.py`)."""
        self.session.mark()
        if self.dump is not None:
            self.dump.mark()
        self._calls_at_mark = {entry.name: entry.calls for entry in self.entries.values() if entry.step == self.step}

    def _count_anew(self) -> None:
        """The step ended at the mark: what was called since are the first calls of the next."""
        session, marked = self.session, self._calls_at_mark
        for entry in self.entries.values():
            if entry.step == self.step:
                entry.calls -= marked.get(entry.name, 0)
                entry.step += 1
                entry.hook_step += entry.hook_step == self.step
        rows = session.since_mark()
        before = np.array(
            [marked.get(site.name, 0) if site.kind is Kind.MODULE else 0 for site in session.sites], dtype=np.int32
        )
        rows["call"] = np.maximum(rows["call"] - before[rows["site"]], 0)

    def finish_step(self, *, behind: bool = False, scalars: dict[str, float] | None = None) -> None:
        session = self.session
        if self.level == Level.FULL:
            self.parameters.digest_rest()
        if behind:
            self._count_anew()
        self.replay.finish_step(self.step, behind=behind)
        self.graphs.finish_step()
        if self.dump is not None:
            self.dump.finish_step(self.step + 1, behind=behind)
        session.cost_ns += self.accounting.finish_step(full=self.level == Level.FULL)
        session.losses_divided(self.divided if not behind else [])
        self.divided = []
        session.policy.may_rest = self._may_rest()
        session.finish_step(behind=behind, scalars=scalars)
        self.step = self.rest.looked_at = session.steps.step
        self.facts.finished_step(self.step)
        limit = session.options.steps
        if limit is not None and self.step >= limit:
            session.end(f"{limit} steps are done, as asked")
        self.level = Level.FULL if self.stops.whole else max(session.policy.level, Level.SENTINEL)
        self.stops.end_of_step()
        settle()
        self.choose(behind=behind)

    def bring_up_to_date(self) -> None:
        """Writes all that is known until now: somebody looks, or nothing may happen for long. Does nothing in another thread,
        where the training may be under way."""
        if self.thread != get_ident():
            return
        try:
            self.session.flush()
            self.session.writer.flush()
            self.facts.write()
        except Exception as problem:
            self.session.guard.contain("writing the recording", problem)

    # -- how much of the next step is looked at ----------------------------------------------------

    def _may_rest(self) -> bool:
        """Whether the coming steps may go unseen. What the user watches, and what must act at once, is looked at in
        every step, whatever it costs."""
        session = self.session
        return (
            self._restful
            and not KNOWN.compiled  # what is compiled may be guarded by the code that would be exchanged
            and session.steps.has_optimizer
            and self.tracer is None
            and not self.stack
            and not self.replay.tracing.wanted
            and not session.gate.asked
            and not self.stops.keeping
        )

    def _room(self) -> int:
        """Steps from now on before one that was asked for."""
        return min([step - self.step for step in self._asked_for if step >= self.step], default=1 << 30)

    def choose(self, *, behind: bool = False) -> None:
        """A step ended: the next is looked at, glanced at, or the first of a stretch that rests. `behind`: it has begun already."""
        policy = self.session.policy
        level = policy.level
        if level < Level.SENTINEL and not self.stops.whole:
            room = self._room()
            if self._may_rest() and room > 0:
                asleep = level is Level.REST and not behind
                self._out(asleep=asleep)
                if asleep:
                    self.rest.begin(min(policy.stretch, room), policy.cold)
                else:
                    policy.level = Level.GLANCE
                return
            policy.level = Level.SENTINEL
        if self.light:
            self.wake()
            self.replay.wake()
        self.level = Level.FULL if self.stops.whole else policy.level
        self._idle()

    def _out(self, *, asleep: bool) -> None:
        """Out of the training's way, but for what a glance needs."""
        if not self.light:
            self.light = True
            self.idle, self.inside_idle = True, False
            self.replay.sleep()
            self.facts.sleep()
            self.latest.forget()
        self.level = Level.SENTINEL
        PATCHES.lift(losses=asleep)

    def wake(self) -> None:
        """Everything is in its place again; where the step has begun already, the rest of it is seen."""
        policy = self.session.policy
        policy.level = max(policy.level, Level.SENTINEL)
        self.light = False
        PATCHES.put()
        self.rest.settle()
        self.level = Level.FULL if self.stops.whole else policy.level
        self._idle()

    def doze(self) -> None:
        """Only the loss, the gradients and the parameters are looked at from here to the end of the step."""
        self.session.policy.level = Level.GLANCE
        self._out(asleep=False)

    def _idle(self) -> None:
        """Modules need not even be noticed in steps that leave them alone."""
        self.idle = self.level <= Level.SENTINEL and not self.stops.inputs_wanted
        self.idle = self.idle and (self.session.steps.has_optimizer or self.step > 0)
        if self.dump is not None and self.dump.on:
            self.idle = False
        self.inside_idle = False

    def _nonfinite(self, site: int) -> None:
        self.replay.alarm(site)
        self.rest.tell(self.step)

    def refresh(self) -> None:
        """Watchpoints, breakpoints or the plan changed: taps are made anew."""
        for entry in list(self.entries.values()):
            entry.taps = []
            entry.seen = False
        self.session.policy.has_watched = any(
            self.session.user_watched(site) for site in self.session.sites if site.kind is Kind.MODULE
        )
        self.stops.refresh()
        self.graphs.refresh()
        self.parameters.plans.clear()
        if self.stops.whole:
            self.level = Level.FULL
        options = self.session.options
        self._restful = (
            not self.session.immediate
            and not self.session.has_user_watchpoints
            and (self.session.gate.light or not self.stops.debugging)
            and self.dump is None
            and options.twin is None
            and options.graph not in ("nodes", "full")
            and options.verify_steps is None
        )
        if self.rest.asleep:
            self.rest.soon()
        elif not self.light:
            self._idle()

    def detach(self) -> None:
        """The program ends: nothing of Tensonde's stays on torch's stacks. May be called twice, in a forked child too."""
        self.replay.end()
        forget()

    # -- values ----------------------------------------------------------------------------------

    def capture(self, site: Site, tensor: Any, moment: Moment) -> None:
        """Keeps the tensor that hit, if it is not too large."""
        if bytes_of(tensor) <= CAPTURE_BYTES:
            content, dtype, shape = raw_bytes(tensor)
            self.session.writer.value(site.address, moment, content, dtype, shape)
