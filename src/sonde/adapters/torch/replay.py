"""Runs the current step again under full trace when something in it went wrong, and leaves no mark on the training.

What is put back afterwards: the states of all random generators, every buffer of the modules (with its version
counter), and nothing else is touched: gradients are taken with `autograd.grad`, which writes to no `.grad`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sonde.adapters.torch import batches
from sonde.adapters.torch.bundle.keep import keep
from sonde.adapters.torch.entry import is_compiled
from sonde.adapters.torch.modes import transforming
from sonde.adapters.torch.reenact import Outcome, Reenactment, same
from sonde.adapters.torch.stateful import Stateful
from sonde.adapters.torch.tape import Tape
from sonde.adapters.torch.tensors import tensors_in
from sonde.adapters.torch.trace import Tracer
from sonde.adapters.torch.undisturbed import undisturbed
from sonde.model.site import Kind, Role
from sonde.model.trace import Trace

if TYPE_CHECKING:
    from sonde.adapters.torch.eager import Eager

MOST_REPLAYS = 3
MOST_STAGES = 3
"""Whole steps that are traced beside the first: of stages, whose loss is often another one."""
_DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub", "rsub")

log = logging.getLogger("sonde.session")


class Replay:
    """Belongs to the training thread. `eager.tracer` is the trace that is under way, of the first step or of
    a replay."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.tape = Tape(eager)
        self.tape.asked = self._asked
        stateful = Stateful()
        self.tape.before_root, self.tape.after_root = stateful.before, stateful.after
        self.active = False
        """The step is being run again now."""
        self.done = 0
        self.off = ""
        """Why no step of this run can be traced or replayed, if so."""
        self._bad: str | None = None
        """What was found to be non-finite since the last look: the loss, or a gradient."""
        self._last_step = self._saved_step = -2
        self._follow = False
        self._ended: Tracer | None = None
        self._first_bad = False
        """The loss of the first step is bad: what came before the first module's call was not seen, so the
        next is traced."""
        self._stages = MOST_STAGES
        self._stage = False
        """The next step is to be traced as a whole."""
        self.staged = False
        """Such a trace is under way. It is of ops alone: weights are weighed in the first step."""
        self._began = 0
        self._poisoned = False
        """A parameter is not finite: whatever comes now follows from that."""
        if eager.session.options.replay is not None:
            self.off = "this is a replay"
        else:
            first = self._in_window(0)
            if first:
                self._trace_live()
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
            plain = getattr(tensor, "_sonde_unscaled", tensor)
            if self.eager.tracer is not None and not self.active:
                with torch._C.DisableTorchFunction():
                    self.eager.tracer.differentiated(plain)
            self.tape.differentiate(tensor, plain, gradient)
            bad, self._bad = self._bad, None
            if bad == "loss":
                if self.eager.step == 0 and self.eager.tracer is not None and not self._first_bad:
                    self._first_bad = True
                    self._save_traced("the loss is not finite", plain)
                elif self.staged:
                    self._save_traced("the loss is not finite", plain)
                self.run("the loss is not finite", plain)

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

    # -- the first step, and one that follows ----------------------------------------------------

    def _trace_live(self, *, sketch: bool = True) -> None:
        self.tape.rest()
        self.tape.wanted = self.staged = False
        self.eager.tracer = Tracer(self.eager, sketch=sketch)
        self.eager.tracer.begin()
        self._began = time.perf_counter_ns()

    def stage_begins(self) -> None:
        """An optimizer was made amid the training: from now on another loss or model may be trained. Its first step is
        let pass, the second is traced."""
        options = self.eager.session.options
        if self._stages and options.budget != 0 and options.window == (0, 1) and self.eager.twin is None:
            self._stage = True

    def _trace_stage(self, *, behind: bool) -> None:
        self._stages -= 1
        self._stage = False
        self._trace_live(sketch=False)
        self.staged = True
        self.tape.wanted = True  # as in the first step: should it go wrong, it can be saved
        if not behind:
            self.tape.resume()

    def _in_window(self, step: int) -> bool:
        """Whether the user wants this step traced: the first one, or those that a comparison asks for."""
        options = self.eager.session.options
        first, last = options.window
        return options.budget != 0 and first <= step < last

    def traced_call(
        self, plain: Callable[..., Any], observed: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any
    ) -> Any:
        """A module is called while a trace is under way. `plain` calls it and `observed` has it observed as well."""
        eager, tracer = self.eager, self.eager.tracer
        assert tracer is not None
        if self.active:
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
        if eager.thread != get_ident():
            return observed(eager, module, args, kwargs)
        evaluated = not eager.stack and not module.training and not torch.is_grad_enabled()
        if self.staged and (evaluated or tracer.paused):
            with self._untraced(tracer):  # an evaluation, which may be long, between this step and the last
                return observed(eager, module, args, kwargs)
        known = eager.entries.get(id(module))
        if known is not None:
            tracer.entered(known)
        compiled = is_compiled(module)
        if not compiled and not transforming():
            return self._recorded_call(tracer, observed, module, args, kwargs)
        note = f"{type(module).__name__} is {'compiled' if compiled else 'transformed'}, so its ops were not traced"
        if note not in tracer.notes:
            tracer.notes.append(note)
        with self._untraced(tracer):  # the compiler must not see it
            return observed(eager, module, args, kwargs)

    def _recorded_call(
        self, tracer: Tracer, observed: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any
    ) -> Any:
        begun, out = None, None
        guard = self.eager.session.guard
        try:
            begun = tracer.call_begins(args, kwargs)
        except Exception as problem:
            guard.contain("tracing a module", problem)
        try:
            out = observed(self.eager, module, args, kwargs)
        finally:
            if begun is not None:
                try:
                    tracer.call_ended(begun, module, out)
                except Exception as problem:
                    guard.contain("tracing a module", problem)
        return out

    def loading(self) -> contextlib.AbstractContextManager[None]:
        """While a loader makes a batch, which is no part of the step."""
        if self.tape.live:
            return self.tape.aside()
        if self.eager.tracer is not None and not self.active:
            return self._untraced(self.eager.tracer)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _untraced(self, tracer: Tracer) -> Iterator[None]:
        if tracer.paused:  # by somebody further out
            yield
            return
        tracer.pause()
        try:
            yield
        finally:
            if self.eager.tracer is tracer:
                tracer.begin()

    def compiled(self, what: str) -> None:
        """The script compiles something other than a module: modes would be seen by the compiler."""
        self.off = f"{what} is compiled"
        self.tape.wanted = False
        self.tape.rest()
        self.eager.stops.ops.forbidden = True
        self.eager.stops.ops.activate(False)
        if self.eager.tracer is not None and not self.active:
            self.eager.tracer.pause()
            self.eager.tracer = None
            self.eager.session.note("trace_skipped", step=self.eager.step, why=self.off)

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
        if eager.tracer is not None and not self.active:
            tracer, eager.tracer = eager.tracer, None
            tracer.pause()
            if eager.twin is not None:
                eager.twin.flush()
            self._ended = tracer
            trace = tracer.finish(step, "first" if step == 0 else "stage" if self.staged else "following")
            self.staged = False
            if step == 0 and _from_before(trace):
                self.stage_begins()
            self._write(trace)
            self._note_batch(step)
            seconds = (time.perf_counter_ns() - self._began) * 1e-9
            eager.session.note("traced", step=step, reason=trace.reason, ops=len(trace.ops), seconds=round(seconds, 4))
            eager.session.uncounted()
        elif self._ended is not None:
            self._ended.pause()  # again: where the step ended inside of an op, torch has put the mode back after it
            self._ended = None
        if (self._follow or self._first_bad or self._in_window(step + 1)) and not self.off:
            self._follow = self._first_bad = False
            self._trace_live()
            return
        if self._stage and not self.off and not self._poisoned:
            self._trace_stage(behind=behind)
            return
        affordable = not eager.session.policy.overdrawn
        tape.wanted = not self.off and self.done < MOST_REPLAYS and not self._poisoned and affordable
        tape.wanted |= self._is_to_be_saved(step + 1) and not self.off
        if behind:
            return
        if tape.wanted:
            tape.resume()
        elif tape.live:
            tape.rest()

    def before_optimizer(self) -> None:
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
        cannot = self.off or tape.trouble or self._forbidden()
        if not cannot and not tape.entries:
            cannot = "nothing of the step was recorded"
        if not cannot and target is not None and tape.slot(target) is None:
            cannot = "the value was not made in code that was recorded"
        if cannot:
            self._follow = not asked
            eager.session.note("replay_impossible", step=eager.step, trigger=why, why=cannot)
            return
        self.done += not asked
        act = Reenactment(eager, tape.entries, tape.losses)
        tracer = act.tracer
        problem: Exception | None = None
        exact, outcome = False, None
        with undisturbed(eager, tape.entries, tracer):
            try:
                exact, outcome = self._again(act, target, asked=asked)
            except Exception as caught:
                problem = caught
                tracer.notes.append(f"running the step again failed: {type(caught).__name__}: {caught}"[:500])
        trace = tracer.finish(eager.step, "replay", exact=exact)
        if not traced:
            self._write(trace)
            self._note_batch(eager.step)
        self._follow = not exact and not asked and self.done < MOST_REPLAYS
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
        if outcome is not None:
            keep(eager, tape, act, outcome, tape.slot(target) if target is not None else None, trace, why)

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
