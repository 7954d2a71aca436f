"""Runs the current step again under full trace when something in it went wrong, and leaves no mark on the training.

Everything that the step's modules can reach is put back afterwards and checked (`restore/`); gradients are taken with
`autograd.grad`, which writes to no `.grad`. Where something could not be put back, no step is run again in this run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.replay.bundle.keep import keep
from tensonde.adapters.torch.replay.execute import Outcome, Reenactment, same
from tensonde.adapters.torch.replay.leaps import Leaps
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.stateful import Stateful
from tensonde.adapters.torch.replay.tape import Tape
from tensonde.adapters.torch.replay.undisturbed import roots_of, undisturbed
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.schedule import LiveTrace
from tensonde.model.site import Kind, Role
from tensonde.store.bundles import LEAP

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager

MOST_REPLAYS = 3

log = logging.getLogger("tensonde.session")


class Replay:
    """Belongs to the training thread. `eager.tracer` is the trace that is under way, of the first step or of
    a replay."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.tape = Tape(eager)
        self.tape.asked = self._asked
        self.tracing = LiveTrace(eager, self.tape)
        stateful = Stateful()
        self.tape.before_root, self.tape.after_root = stateful.before, stateful.after
        self.leaps = Leaps()
        self.active = False
        """The step is being run again now."""
        self.done = 0
        self.off = ""
        """Why no step of this run can be traced or replayed, if so."""
        self.refused = "TENSONDE_REPLAY is 0" if os.environ.get("TENSONDE_REPLAY") == "0" else ""
        """Why no step is run again, if so: it was asked for, or an earlier one could not be undone or finished."""
        self._bad: str | None = None
        """What was found to be non-finite since the last look: the loss, or a gradient."""
        self._last_step = self._saved_step = -2
        self._poisoned = False
        """A parameter is not finite: whatever comes now follows from that."""
        if eager.session.options.replay is not None:
            self.off = "this is a replay"
        else:
            first = self.tracing.in_window(0)
            if first:
                self.tracing.begin()
            self.tape.wanted = True
            if first or self._is_to_be_saved(0):
                self.tape.resume()

    def _is_to_be_saved(self, step: int) -> bool:
        return step in self.eager.session.options.save_steps

    # -- alarms ----------------------------------------------------------------------------------

    def alarm(self, number: int) -> None:
        """A digest at this site has NaN or Inf."""
        site = self.eager.session.sites[number]
        if site.kind is Kind.LOSS:
            self._bad = "loss"
        elif site.kind is Kind.PARAMETER and site.role is Role.GRAD:
            self._bad = self._bad or "gradient"
        elif site.kind is Kind.PARAMETER and site.role is Role.VALUE:
            self._poisoned = True

    def loss(self, given: Any, gradient: Any) -> None:
        """A backward pass is about to begin; the loss has been digested."""
        tensors = tensors_in(given)[:1]
        for tensor in tensors:
            plain = getattr(tensor, "_tensonde_unscaled", tensor)
            if self.eager.tracer is not None and not self.active:
                with unseen():
                    self.eager.tracer.differentiated(plain)
            self.tape.differentiate(tensor, plain, gradient)
            bad, self._bad = self._bad, None
            if bad == "loss":
                first = self.eager.step == 0 and self.eager.tracer is not None
                if first or self.tracing.staged:
                    self._save_traced("the loss is not finite", plain)
                self.tracing.follow |= first  # what came before the first module's call was not seen
                self.run("the loss is not finite", plain)
            elif self.leaps.is_one(self.eager.loss):
                self._leapt(plain)

    def _leapt(self, loss: Tensor) -> None:
        """Traces the step of a loss that is finite but far out. Says nothing about steps that go wrong after it."""
        last, done = self._last_step, self.done
        if self.tape.entries and not self.off:
            self.run(LEAP, loss)
        self._last_step, self.done = last, done

    def gradients(self) -> None:
        """The gradients have been digested, the optimizer has not stepped yet."""
        if self._is_to_be_saved(self.eager.step):
            self._save_traced("asked for", None)
        bad, self._bad = self._bad, None
        if bad == "gradient" and not self.eager.session.engine.loss_scaling:
            if self.eager.tracer is not None:
                self._save_traced("a gradient is not finite", None)
            self.run("a gradient is not finite", None)

    def _save_traced(self, why: str, target: Tensor | None) -> None:
        """A step that is traced as it runs, if it is, is run again only to be saved."""
        live = self.eager.tracer
        before, self._saved_step = self._saved_step, self.eager.step
        if live is None or self.active:
            self.run(why, target, asked=True)
            return
        if not self.tape.entries or before == self.eager.step:
            return
        with live.aside():
            self.eager.tracer = None
            try:
                self.run(why, target, asked=True, traced=True)
            finally:
                self.eager.tracer = live

    def _asked(self, tensor: Tensor) -> None:
        if self.eager.tracer is not None:
            self._save_traced("the script looked and found a value that is not finite", tensor)
        self.run("the script looked and found a value that is not finite", tensor)

    def traced_call(
        self, plain: Callable[..., Any], observed: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any
    ) -> Any:
        """A module is called while a trace is under way. `plain` calls it and `observed` has it observed as well."""
        eager, tracer = self.eager, self.eager.tracer
        assert tracer is not None
        if not self.active:
            return self.tracing.call(tracer, observed, module, args, kwargs)
        entry = eager.entries.get(id(module)) or eager.meet(module)
        tracer.entered(entry)
        eager.stack.append(entry)
        try:  # what was compiled runs as it was written, so that its ops are seen
            if type(module).__name__ == "OptimizedModule":
                return module._orig_mod(*args, **kwargs)
            if getattr(module, "_compiled_call_impl", None) is not None:
                return module._call_impl(*args, **kwargs)
            return plain(module, *args, **kwargs)
        finally:
            eager.stack.pop()

    def loading(self) -> contextlib.AbstractContextManager[None]:
        """While a loader makes a batch, which is no part of the step."""
        if self.tape.live:
            return self.tape.aside()
        if self.eager.tracer is not None and not self.active:
            return self.tracing.paused(self.eager.tracer)
        return contextlib.nullcontext()

    def compiled(self, what: str) -> None:
        """The script compiles something other than a module: modes would be seen by the compiler."""
        self.off = f"{what} is compiled"
        self.tape.wanted = False
        self.tape.rest()
        self.eager.stops.ops.forbidden = True
        self.eager.stops.ops.activate(False)
        if not self.active:
            self.tracing.give_up(self.off)

    def finish_step(self, step: int, *, behind: bool) -> None:
        """The step is over. Called once a step, so it must be quick when there is nothing to do."""
        eager = self.eager
        tape = self.tape
        if self._is_to_be_saved(step) and self._saved_step != step:
            eager.session.note(
                "bundle_declined", step=step, why="it has no optimizer step, before which it would be saved"
            )
        if not behind:
            tape.clear()
        eager.session.cost_ns += tape.cost_ns
        tape.cost_ns = 0
        self._bad = None
        if not self.active and (trace := self.tracing.finish(step)) is not None:
            self._write(trace)
            self._note_batch(step)
            eager.session.uncounted()
        if not self.off and self.tracing.begin_next(step + 1, behind=behind, stages=not self._poisoned):
            return
        if eager.light:
            return
        possible = not self.off and not self.refused
        tape.wanted = possible and self.done < MOST_REPLAYS and not self._poisoned
        tape.wanted |= possible and self._is_to_be_saved(step + 1)
        if behind:
            return
        if tape.wanted:
            tape.resume()
        elif tape.live:
            tape.rest()

    def end(self) -> None:
        """The program ends."""
        self.tape.end()
        self.tracing.end()

    def sleep(self) -> None:
        """The coming steps are not looked at."""
        self.tape.wanted = False
        self.tape.rest()
        self.tape.clear()

    def wake(self) -> None:
        """The coming step is, from its beginning."""
        if self.eager.tracer is None:
            possible = not self.off and not self.refused
            self.tape.wanted = possible and self.done < MOST_REPLAYS and not self._poisoned
            self.tape.wanted |= possible and self._is_to_be_saved(self.eager.step)
            self.tape.resume()

    def before_optimizer(self) -> None:
        self.tape.rest()

    def closure_begins(self, *, again: bool) -> None:
        """The optimizer calls the step's computation: `again` after it has changed parameters."""
        if again:
            self.tape.clear()
        if not self.eager.light:
            self.tape.resume()

    def closure_ends(self) -> None:
        self.tape.rest()

    def after_optimizer(self) -> None:
        """Parameters have changed: what was computed with them cannot be computed again."""
        if self.tape.wanted and self.tape.entries:
            self.tape.clear()
        if not self.tape.recording:
            self.tape.resume()

    def _write(self, trace: Any) -> None:
        try:
            self.eager.session.writer.trace(trace)
        except Exception as problem:
            self.eager.session.guard.contain("writing the recording", problem)

    def _note_batch(self, step: int) -> None:
        if batches.latest is not None:
            self.eager.session.note("batch", step=step, **batches.latest.facts())

    # -- running the step again ------------------------------------------------------------------

    def run(self, why: str, target: Tensor | None, *, asked: bool = False, traced: bool = False) -> None:
        """`target` is the value that is wrong; None when it is a gradient, or when the user asked for this step.

        `asked`: whatever else was replayed. `traced`: there is a trace of this step already.
        """
        eager = self.eager
        if self.active or eager.tracer is not None:
            return
        if not asked:
            if self._poisoned or self.done >= MOST_REPLAYS:
                return
            if eager.step in (self._last_step, self._last_step + 1):
                self._last_step = eager.step
                return  # the same trouble goes on
            self._last_step = eager.step
            if self.off:  # compiled code is not on the tape, but its graphs are at hand
                self.done += 1
                trace = eager.graphs.retrace(why)
                if trace is not None:
                    self._write(trace)
                    self._note_batch(eager.step)
                eager.session.uncounted()
                return
        began = time.perf_counter_ns()
        tape = self.tape
        cannot = self.off or self.refused or tape.trouble or self._forbidden()
        if not cannot and not tape.entries:
            cannot = "nothing of the step was recorded"
        if not cannot and target is not None and tape.slot(target) is None:
            cannot = "the value was not made in code that was recorded"
        before: Before | None = None
        if not cannot:
            try:
                before = Before(roots_of(tape.entries))
                cannot = before.trouble
            except Exception as failed:
                log.debug("the state of the step could not be noted", exc_info=failed)
                cannot = f"its state could not be noted: {type(failed).__name__}: {failed}"[:300]
        if cannot or before is None:
            self.tracing.follow |= not asked
            eager.session.note("replay_impossible", step=eager.step, trigger=why, why=cannot)
            return
        self.done += not asked
        act = Reenactment(eager, tape.entries, tape.losses)
        tracer = act.tracer
        problem: Exception | None = None
        exact, outcome = False, None
        with undisturbed(eager, before, tracer) as lost:
            try:
                exact, outcome = copy_context().run(self._again, act, target, asked=asked)
            except Exception as caught:
                problem = caught
                tracer.notes.append(f"running the step again failed: {type(caught).__name__}: {caught}"[:500])
        exact = exact and not lost and not before.writes.refused
        self._take_stock(lost, before.writes.refused, tracer.notes)
        trace = tracer.finish(eager.step, "replay", exact=exact)
        if not traced:
            self._write(trace)
            self._note_batch(eager.step)
        self.tracing.follow |= not exact and not asked and self.done < MOST_REPLAYS
        spent = time.perf_counter_ns() - began
        eager.session.note(
            "replayed",
            step=eager.step,
            trigger=why,
            exact=exact,
            ops=len(trace.ops),
            notes=list(trace.notes),
            seconds=round(spent * 1e-9, 4),
        )
        eager.session.uncounted()
        if problem is not None:
            log.debug("replay failed", exc_info=problem)
        if outcome is not None and not self.refused:
            keep(eager, tape, act, outcome, tape.slot(target) if target is not None else None, trace, why)

    def _take_stock(self, lost: list[str], refused: str, notes: list[str]) -> None:
        """The step was run again: whether another one may be."""
        step = self.eager.step
        if lost:
            what = ", ".join(lost[:5])
            self.refused = f"running step {step} again changed {what}, which could not be put back"
            log.warning("%s; no step is run again any more", self.refused)
            self.eager.session.note("replay_unrestored", step=step, what=lost[:50])
        elif refused:
            self.refused = f"the step {refused}, which could not be undone"
        if self.refused:
            notes.append(self.refused)

    def _forbidden(self) -> str:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            for entry in self.tape.entries:
                if isinstance(entry.call, nn.Module) and any(
                    "FSDP" in type(part).__name__
                    or "FullySharded" in type(part).__name__
                    or "SyncBatchNorm" in type(part).__name__
                    for part in entry.call.modules()
                ):
                    return "the model communicates with other ranks in its forward"
        return ""

    def _again(self, act: Reenactment, target: Tensor | None, *, asked: bool) -> tuple[bool, Outcome]:
        """Whether what came out is what the training had computed, and what came out."""
        tape, notes = self.tape, act.tracer.notes
        exact = tape.unchanged()
        if not exact:
            notes.append("tensors that the step began with were changed since")
        wanted = tape.slot(target) if target is not None else None
        outcome = act.run(wanted)
        if wanted is not None and target is not None and not same(outcome.values[wanted].detach(), target.detach()):
            exact = False
            notes.append("the value that came out is not the one that the training had computed")
        if target is None and not asked and not outcome.bad_gradient:
            exact = False
            notes.append("the gradients that came out are finite, unlike those of the training")
        for slot, value in tape.alive([loss[0] for loss in tape.losses] if asked else []):
            if slot in outcome.values and not same(outcome.values[slot].detach(), value.detach()):
                exact = False
                notes.append("the loss that came out is not the one that the training had computed")
        return exact, outcome
