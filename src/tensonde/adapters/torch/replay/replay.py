"""Runs the current step again under full trace when something in it went wrong, and leaves no mark on the training.

Everything that the step's modules can reach is put back afterwards and checked (`restore/`); gradients are taken with
`autograd.grad`, which writes to no `.grad`. Where something could not be put back, no step is run again in this run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.replay.bundle.keep import keep
from tensonde.adapters.torch.replay.call import Slot
from tensonde.adapters.torch.replay.execute import Outcome, Reenactment, dense, same
from tensonde.adapters.torch.replay.late import Kept, Late
from tensonde.adapters.torch.replay.leaps import Leaps
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.stateful import Stateful
from tensonde.adapters.torch.replay.tape import Tape
from tensonde.adapters.torch.replay.undisturbed import roots_of, undisturbed
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.script.blocking import Blocking
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.schedule import LiveTrace
from tensonde.adapters.torch.twins import TwinFeed
from tensonde.model.site import Kind, Role
from tensonde.model.trace import OpRecord, Trace
from tensonde.store.bundles import LEAP, TAKEN_OUT

MOST_REPLAYS = 3
GONE = "the device told of it when what the step began with was gone"

log = logging.getLogger("tensonde.session")


class Replay:
    """Belongs to the training thread."""

    def __init__(self, state: RunState, digests: Digests, stops: Stops, twin: TwinFeed | None) -> None:
        self.state = state
        self.digests = digests
        self._stops = stops
        self.tape = Tape(state)
        self.tape.asked = self._asked
        self.tape.taken_out = lambda tensor: self._asked(tensor, TAKEN_OUT)
        self.tracing = LiveTrace(state, self.tape, twin)
        stateful = Stateful()
        self.tape.before_root, self.tape.after_root = stateful.before, stateful.after
        self.leaps = Leaps()
        self.retrace: Callable[[str], Trace | None] = lambda why: None
        """Traces this step by the graphs of compiled code, which is not on the tape. It is given why."""
        self.asked_of: Callable[[int], bool] = lambda step: False
        """Whether experiments are asked of this step."""
        self.tell_unseen: Callable[[int, int | None], None] = lambda step, looked_at: None
        """A value of this step is not finite: says which steps before it were not observed, after the one given."""
        self.late = Late(self)
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
        self._amid = False
        """The tape began within a step, for an evaluation."""
        self._traced: set[int] = set()
        """Steps that were traced as they ran."""
        self._poisoned = False
        """A parameter is not finite: whatever comes now follows from that."""
        if state.session.options.replay is not None:
            self.off = "this is a replay"
        else:
            first = self.tracing.in_window(0)
            if first:
                self.tracing.begin()
            self.tape.wanted = self._wants_tape(0)
            if first or self._is_to_be_saved(0):
                self.tape.resume()

    def _is_to_be_saved(self, step: int) -> bool:
        return step in self.state.session.options.save_steps

    def _is_to_be_taped(self, step: int) -> bool:
        return self._is_to_be_saved(step) or self.asked_of(step)

    def _wants_tape(self, step: int) -> bool:
        """The tape keeps what a step was given, so it stays off where memory is measured."""
        if self.off or self.refused:
            return False
        wary = self.done < MOST_REPLAYS and not self._poisoned and not self.state.session.options.memory
        return self._is_to_be_taped(step) or wary

    # -- alarms ----------------------------------------------------------------------------------

    def alarm(self, number: int) -> None:
        """A digest at this site has NaN or Inf."""
        site = self.state.session.sites[number]
        if site.kind is Kind.LOSS:
            self._bad = "loss"
        elif site.kind is Kind.PARAMETER and site.role is Role.GRAD:
            self._bad = self._bad or "gradient"
        elif site.kind is Kind.PARAMETER and site.role is Role.VALUE:
            self._poisoned = True

    def loss(self, given: Any, gradient: Any) -> None:
        """A backward pass is about to begin; the loss has been digested."""
        if self._amid:
            self.tape.stop("the step had begun before Tensonde looked")
        tensors = tensors_in(given)[:1]
        for tensor in tensors:
            plain = getattr(tensor, "_tensonde_unscaled", tensor)
            if self.tracing.tracer is not None and not self.active:
                with unseen():
                    self.tracing.tracer.differentiated(plain)
            self.tape.differentiate(tensor, plain, gradient)
            bad, self._bad = self._bad, None
            if bad == "loss":
                first = self.state.step == 0 and self.tracing.tracer is not None
                if first or self.tracing.staged:
                    self._save_traced("the loss is not finite", plain)
                self.tracing.follow |= first  # what came before the first module's call was not seen
                self.run("the loss is not finite", plain)
            elif self.leaps.is_one(self.state.loss):
                self._leapt(plain)

    def _leapt(self, loss: Tensor) -> None:
        """Traces the step of a loss that is finite but far out. Says nothing about steps that go wrong after it."""
        last, done = self._last_step, self.done
        if self.tape.entries and not self.off:
            self.run(LEAP, loss)
        self._last_step, self.done = last, done

    def gradients(self) -> None:
        """The gradients have been digested, the optimizer has not stepped yet."""
        if self._is_to_be_saved(self.state.step):
            self._save_traced("asked for", None)
        bad, self._bad = self._bad, None
        if bad == "gradient" and not self.state.session.engine.loss_scaling:
            if self.tracing.tracer is not None:
                self._save_traced("a gradient is not finite", None)
            self.run("a gradient is not finite", None)

    def _save_traced(self, why: str, target: Tensor | None) -> None:
        """A step that is traced as it runs, if it is, is run again only to be saved."""
        live = self.tracing.tracer
        before, self._saved_step = self._saved_step, self.state.step
        if live is None or self.active:
            self.run(why, target, asked=True)
            return
        if not self.tape.entries or before == self.state.step:
            return
        with live.aside():
            self.tracing.tracer = None
            try:
                self.run(why, target, asked=True, traced=True)
            finally:
                self.tracing.tracer = live

    # -- what a device tells afterwards ----------------------------------------------------------

    def run_late(self, why: str, step: int, kept: Kept | None, *, loss: bool) -> None:
        """An earlier step went wrong: `loss`, or else a gradient, is not finite."""
        if step in self._traced:  # as it ran, but for what came before the first module's call
            self.tracing.follow |= step == 0
            return
        wanted = kept.losses[-1][1] if kept is not None and loss and kept.losses else None
        with self._as_then(kept):
            self.run(why, None, step=step, kept=kept, wanted=wanted, late=True)

    @contextlib.contextmanager
    def _as_then(self, kept: Kept | None) -> Iterator[None]:
        """The modules' code reads what it read in that step, and a trace of the coming step, which may have begun, does not see it."""
        if kept is None:
            yield
            return
        live = self.tracing.tracer
        with kept.scalars.as_then(), live.aside() if live is not None else contextlib.nullcontext():
            self.tracing.tracer = None
            try:
                yield
            finally:
                self.tracing.tracer = live

    def leapt_late(self, step: int, kept: Kept | None) -> None:
        last, done = self._last_step, self.done
        if kept is not None and not kept.trouble and not self.off:
            kept.leapt = True
            with self._as_then(kept):
                self.run(LEAP, None, step=step, kept=kept, wanted=kept.losses[-1][1], late=True)
        self._last_step, self.done = last, done

    def failed_op(self) -> tuple[OpRecord, int] | None:
        """A device has reported an error of some op before: runs the last steps again, the latest first, waiting for every op. The op
        that fails, and its step."""
        steps: list[tuple[int, Kept | None]] = [(self.state.step, None)] if self.tape.entries else []
        steps += [(kept.step, kept) for kept in reversed(self.late.kept) if not kept.trouble]
        for step, kept in steps:
            why = "the device reported an error"
            with self._as_then(kept):
                trace = self.run(why, None, asked=True, late=kept is not None, step=step, kept=kept, blocked=True)
            failed = next((op for op in trace.ops if op.error), None) if trace is not None else None
            if failed is not None:
                return failed, step
        return None

    def poisoned(self) -> None:
        """A parameter is not finite: what comes from now on follows from that."""
        self._poisoned = True

    def _asked(self, tensor: Tensor, why: str = "the script looked and found a value that is not finite") -> None:
        if self.tracing.tracer is not None:
            self._save_traced(why, tensor)
        self.run(why, tensor)

    def traced_call(
        self, plain: Callable[..., Any], observed: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any
    ) -> Any:
        """A module is called while a trace is under way. `plain` calls it and `observed` has it observed as well."""
        state, tracer = self.state, self.tracing.tracer
        assert tracer is not None
        if not self.active:
            return self.tracing.call(tracer, observed, module, args, kwargs)
        entry = state.roster.entries.get(id(module)) or state.roster.meet(module, state.stack, state.step)
        tracer.entered(entry)
        state.stack.append(entry)
        try:  # what was compiled runs as it was written, so that its ops are seen
            if type(module).__name__ == "OptimizedModule":
                return module._orig_mod(*args, **kwargs)
            if getattr(module, "_compiled_call_impl", None) is not None:
                return module._call_impl(*args, **kwargs)
            return plain(module, *args, **kwargs)
        finally:
            state.stack.pop()

    def loading(self) -> contextlib.AbstractContextManager[None]:
        """While a loader makes a batch, which is no part of the step."""
        if self.tape.live:
            return self.tape.aside()
        if self.tracing.tracer is not None and not self.active:
            return self.tracing.paused(self.tracing.tracer)
        return contextlib.nullcontext()

    def compiled(self, what: str) -> None:
        """The script compiles something other than a module: modes would be seen by the compiler."""
        self.off = f"{what} is compiled"
        self.tape.wanted = False
        self.tape.rest()
        self._stops.ops.forbidden = True
        self._stops.ops.activate(False)
        if not self.active:
            self.tracing.give_up(self.off)

    def finish_step(self, step: int, *, behind: bool) -> None:
        """The step is over. Called once a step, so it must be quick when there is nothing to do."""
        state = self.state
        tape = self.tape
        if self._is_to_be_saved(step) and self._saved_step != step:
            state.session.note(
                "bundle_declined", step=step, why="it has no optimizer step, before which it would be saved"
            )
        self._amid = False
        if not behind:
            tape.clear()
        state.session.cost_ns += tape.cost_ns
        tape.cost_ns = 0
        self._bad = None
        if not self.active and (trace := self.tracing.finish(step)) is not None:
            self._write(trace)
            self._traced.add(step)
            self._note_batch(step, batches.latest)
            state.session.uncounted()
        if not self.off and self.tracing.begin_next(step + 1, behind=behind, stages=not self._poisoned):
            return
        if state.light:
            return
        tape.wanted = self._wants_tape(step + 1)
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
        if self.tracing.tracer is None:
            self.tape.wanted = self._wants_tape(self.state.step)
            self.tape.resume()

    def evaluation_begins(self) -> None:
        """Amid steps that are not looked at: what comes now is, but a step that has begun already is no longer whole."""
        if self.tracing.tracer is None and not self.tape.live:
            self._amid = True
            self.wake()

    def before_optimizer(self, optimizer: Any) -> None:
        self.tape.rest()
        self.late.keep(optimizer)

    def closure_begins(self, *, again: bool) -> None:
        """The optimizer calls the step's computation: `again` after it has changed parameters."""
        if again:
            self.tape.clear()
        if not self.state.light:
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
            self.state.session.writer.trace(trace)
        except Exception as problem:
            self.state.session.guard.contain("writing the recording", problem)

    def _note_batch(self, step: int, batch: batches.Batch | None) -> None:
        if batch is not None:
            self.state.session.note("batch", step=step, **batch.facts())

    # -- running the step again ------------------------------------------------------------------

    def run(
        self, why: str, target: Tensor | None, *, asked: bool = False, traced: bool = False, late: bool = False,
        step: int | None = None, kept: Kept | None = None, wanted: Slot | None = None, blocked: bool = False,
    ) -> Trace | None:  # fmt: skip
        """`target` is the value that is wrong; None when it is a gradient, or when the user asked for this step.

        `asked`: whatever else was replayed. `traced`: there is a trace of this step already. `late`: it is an earlier step, of which
        `kept` is left, and what is wrong is `wanted`. `blocked`: the device is waited for after every op. The trace, where there is one.
        """
        state = self.state
        step = state.step if step is None else step
        if self.active or self.tracing.tracer is not None:
            return None
        if not asked:
            if self._poisoned or self.done >= MOST_REPLAYS:
                return None
            if step in (self._last_step, self._last_step + 1):
                self._last_step = step
                return None  # the same trouble goes on
            self._last_step = step
            if self.off:  # compiled code is not on the tape, but its graphs are at hand
                self.done += 1
                trace = self.retrace(why) if not late else None
                if trace is not None:
                    self._write(trace)
                    self._note_batch(state.step, batches.latest)
                state.session.uncounted()
                return None
        began = time.perf_counter_ns()
        if late and kept is None:
            state.session.note("replay_impossible", step=step, trigger=why, why=GONE)
            return None
        tape = kept or self.tape
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
            state.session.note("replay_impossible", step=step, trigger=why, why=cannot)
            return None
        self.done += not asked
        act = Reenactment(state, tape.entries, tape.losses)
        tracer = act.tracer
        problem: Exception | None = None
        exact, outcome = False, None
        with undisturbed(state, self, before, tracer) as lost:
            try:
                exact, outcome = copy_context().run(
                    self._again, tape, act, target, wanted, asked=asked, blocked=blocked
                )
            except Exception as caught:
                problem = caught
                tracer.notes.append(f"running the step again failed: {type(caught).__name__}: {caught}"[:500])
        exact = exact and not lost and not before.writes.refused
        self._take_stock(lost, before.writes.refused, tracer.notes, step)
        trace = tracer.finish(step, "replay", exact=exact)
        if not traced:
            self._write(trace)
            self._note_batch(step, kept.batch if kept is not None else batches.latest)
        self.tracing.follow |= not exact and not asked and self.done < MOST_REPLAYS
        spent = time.perf_counter_ns() - began
        state.session.note(
            "replayed",
            step=step,
            trigger=why,
            exact=exact,
            ops=len(trace.ops),
            notes=list(trace.notes),
            seconds=round(spent * 1e-9, 4),
        )
        state.session.uncounted()
        if problem is not None:
            log.debug("replay failed", exc_info=problem)
        if late:
            state.session.note("bundle_declined", step=step, why="the device told of it when the step was over")
        elif outcome is not None and not self.refused:
            keep(state, self.tape, act, outcome, tape.slot(target) if target is not None else None, trace, why)
        return trace

    def _take_stock(self, lost: list[str], refused: str, notes: list[str], step: int) -> None:
        """The step was run again: whether another one may be."""
        if lost:
            what = ", ".join(lost[:5])
            self.refused = f"running step {step} again changed {what}, which could not be put back"
            log.warning("%s; no step is run again any more", self.refused)
            self.state.session.note("replay_unrestored", step=step, what=lost[:50])
        elif refused:
            self.refused = f"the step {refused}, which could not be undone"
        if self.refused:
            notes.append(self.refused)

    def _forbidden(self) -> str:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            roots = [entry.call for entry in self.tape.entries if isinstance(entry.call, nn.Module)]
            if self.state.communicates or any(_communicates(root) for root in roots):
                return "the model communicates with other ranks in its forward"
        return ""

    def _again(
        self,
        tape: Tape | Kept,
        act: Reenactment,
        target: Tensor | None,
        wanted: Slot | None,
        *,
        asked: bool,
        blocked: bool,
    ) -> tuple[bool, Outcome]:
        """Whether what came out is what the training had computed, and what came out."""
        notes = act.tracer.notes
        exact = tape.unchanged()
        if not exact:
            which = f": {', '.join(tape.changed()[:3])}" if isinstance(tape, Kept) else ""
            notes.append(f"tensors that the step began with were changed since{which}")
        if isinstance(tape, Kept):
            tape.put_back()
        wanted = tape.slot(target) if target is not None else wanted
        with Blocking() if blocked else contextlib.nullcontext():
            outcome = act.run(wanted)
        if isinstance(tape, Kept):
            return exact and (tape.leapt or self._as_told(outcome, wanted, notes)), outcome
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

    def _as_told(self, outcome: Outcome, wanted: Slot | None, notes: list[str]) -> bool:
        """Of an earlier step only the digests are left to compare with."""
        if wanted is None:
            bad = outcome.bad_gradient
            what = "the gradients that came out are"
        else:
            bad = wanted in outcome.values and not bool(torch.isfinite(dense(outcome.values[wanted])).all())
            what = "the loss that came out is"
        if not bad:
            notes.append(f"{what} finite, unlike the device's")
        return bad


def _communicates(root: nn.Module) -> bool:
    """It is sharded, or normalises over all ranks."""
    words = ("FSDP", "FullySharded", "SyncBatchNorm")
    parts = any(word in type(part).__name__ for part in root.modules() for word in words)
    return parts or any(hasattr(parameter, "placements") for parameter in root.parameters())
