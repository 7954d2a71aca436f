"""Runs the current step again under full trace when something in it went wrong, and leaves no mark on the training.

What is put back afterwards: the states of all random generators, every buffer of the modules (with its version
counter), and nothing else is touched: gradients are taken with `autograd.grad`, which writes to no `.grad`.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from sonde.adapters.torch import batches
from sonde.adapters.torch.frames import display_path
from sonde.adapters.torch.modes import push, remove
from sonde.adapters.torch.stops import OBSERVED_BY_NOBODY
from sonde.adapters.torch.tape import Entry, Slot, Tape
from sonde.adapters.torch.tensors import tensors_in
from sonde.adapters.torch.trace import Tracer, transforming
from sonde.model.moment import Phase
from sonde.model.site import Kind, Role, SourceLine

if TYPE_CHECKING:
    from sonde.adapters.torch.eager import Eager

MOST_REPLAYS = 3
_STATE_BYTES = 1 << 20
"""Buffers of a module that its forward reads and writes, other than running statistics, are copied up to this size."""
_COPY_BYTES = 1 << 30

log = logging.getLogger("sonde.session")


class Replay:
    """Belongs to the training thread. `eager.tracer` is the trace that is under way, of the first step or of
    a replay."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.tape = Tape(eager)
        self.tape.asked = self._asked
        self.tape.before_root = self._before_root
        self.tape.after_root = self._after_root
        self.active = False
        """The step is being run again now."""
        self.done = 0
        self.off = ""
        """Why no step of this run can be traced or replayed, if so."""
        self._bad: str | None = None
        """What was found to be non-finite since the last look: the loss, or a gradient."""
        self._last_step = -2
        self._follow = False
        self._ended: Tracer | None = None
        self._first_bad = False
        """The loss of the first step is bad: what came before the first module's call was not seen, so the
        next is traced."""
        self._began = 0
        self._stateful: dict[int, list[str]] = {}
        self._watched: list[tuple[nn.Module, str, Tensor, int]] | None = None
        self._foreign_random: tuple[Any, Any] | None = None
        self._poisoned = False
        """A parameter is not finite: whatever comes now follows from that."""
        if self._in_window(0):
            self._trace_live()
        else:
            self.tape.wanted = True

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
                self._first_bad = self._first_bad or (self.eager.step == 0 and self.eager.tracer is not None)
                self.run("the loss is not finite", plain)

    def gradients(self) -> None:
        """The gradients have been digested, the optimizer has not stepped yet."""
        bad, self._bad = self._bad, None
        if bad == "gradient" and not self.eager.session.engine.loss_scaling:
            self.run("a gradient is not finite", None)

    def _asked(self, tensor: Tensor) -> None:
        self.run("the script looked and found a value that is not finite", tensor)

    # -- the first step, and one that follows ----------------------------------------------------

    def _trace_live(self) -> None:
        self.tape.rest()
        self.tape.wanted = False
        self.eager.tracer = Tracer(self.eager, sketch=True)
        self.eager.tracer.begin()
        self._began = time.perf_counter_ns()

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
        known = eager.entries.get(id(module))
        if known is not None:
            tracer.entered(known)
        compiled = (
            type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
        )
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
        if self.eager.tracer is not None and not self.active:
            self.eager.tracer.pause()
            self.eager.tracer = None
            self.eager.session.note("trace_skipped", step=self.eager.step, why=self.off)

    def finish_step(self, step: int, *, behind: bool) -> None:
        """The step is over. Called once a step, so it must be quick when there is nothing to do."""
        eager = self.eager
        tape = self.tape
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
            trace = tracer.finish(step, "first" if step == 0 else "following")
            self._write(trace)
            self._note_batch(step)
            self._watched = None
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
        affordable = not eager.session.policy.overdrawn
        tape.wanted = not self.off and self.done < MOST_REPLAYS and not self._poisoned and affordable
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

    # -- what a root's call depends on -----------------------------------------------------------

    def _before_root(self, entry: Entry, module: nn.Module) -> None:
        """Buffers that the forward both reads and writes are copied; that there are any shows in the first call."""
        names = self._stateful.get(id(module))
        if names is None:
            self._watched = [
                (owner, name, buffer, buffer._version)
                for owner in module.modules()
                if not isinstance(owner, nn.modules.batchnorm._BatchNorm)
                for name, buffer in owner.named_buffers(recurse=False)
                if buffer is not None
            ]
            return
        for name in names:
            buffer = module.get_buffer(name)
            entry.buffers = (*entry.buffers, (buffer, buffer.detach().clone()))

    def _after_root(self, module: nn.Module) -> None:
        if self._watched is None:
            return
        watched, self._watched = self._watched, None
        changed = {
            (id(owner), name) for owner, name, buffer, version in watched if _changed(owner, name, buffer, version)
        }
        paths = [
            f"{path}.{name}" if path else name
            for path, owner in module.named_modules()
            for name, buffer in owner.named_buffers(recurse=False)
            if (id(owner), name) in changed and buffer.numel() * buffer.element_size() <= _STATE_BYTES
        ]
        self._stateful[id(module)] = paths

    # -- running the step again ------------------------------------------------------------------

    def run(self, why: str, target: Tensor | None) -> None:
        """`target` is the value that is wrong; None when it is a gradient."""
        eager = self.eager
        if self.active or self.off or eager.tracer is not None or self._poisoned or self.done >= MOST_REPLAYS:
            return
        if eager.step in (self._last_step, self._last_step + 1):
            self._last_step = eager.step
            return  # the same trouble goes on
        self._last_step = eager.step
        began = time.perf_counter_ns()
        tape = self.tape
        cannot = tape.trouble or self._forbidden()
        if not cannot and not tape.entries:
            cannot = "nothing of the step was recorded"
        if not cannot and target is not None and tape.slot(target) is None:
            cannot = "the value was not made in code that was recorded"
        if cannot:
            self._follow = True
            eager.session.note("replay_impossible", step=eager.step, trigger=why, why=cannot)
            return
        self.done += 1
        tracer = Tracer(eager, boundary=Replay._execute.__code__)
        problem: Exception | None = None
        exact = False
        with self._undisturbed(tracer):
            try:
                exact = self._again(tracer, target)
            except Exception as caught:
                problem = caught
                tracer.notes.append(f"running the step again failed: {type(caught).__name__}: {caught}"[:500])
        trace = tracer.finish(eager.step, "replay", exact=exact)
        self._write(trace)
        self._note_batch(eager.step)
        self._follow = not exact and self.done < MOST_REPLAYS
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

    def _again(self, tracer: Tracer, target: Tensor | None) -> bool:
        """Whether what came out is what the training had computed."""
        tape = self.tape
        values: dict[Slot, Tensor] = {}
        exact = tape.unchanged()
        if not exact:
            tracer.notes.append("tensors that the step began with were changed since")
        wanted = tape.slot(target) if target is not None else None
        tracer.begin()
        try:
            for entry in tape.entries:
                values |= self._execute(entry, values, tracer)
                if wanted is not None and wanted in values:
                    break
        finally:
            tracer.pause()
        if wanted is not None and target is not None:
            made = values[wanted]
            tracer.differentiated(made)
            if not _same(made.detach(), target.detach()):
                exact = False
                tracer.notes.append("the value that came out is not the one that the training had computed")
        bad_gradient = False
        for scaled, plain, gradient in tape.losses:
            if scaled in values:
                tracer.differentiated(values[plain if plain in values else scaled])
                bad_gradient |= self._differentiate(values[scaled], gradient, tracer)
        if target is None and not bad_gradient:
            exact = False
            tracer.notes.append("the gradients that came out are finite, unlike those of the training")
        return exact

    def _execute(self, entry: Entry, values: dict[Slot, Tensor], tracer: Tracer) -> dict[Slot, Tensor]:
        """One call, with the values of this time in the place of those of then. A boundary in the stack: see
        `Tracer`."""
        source = None
        if entry.code is not None:
            path = entry.code.co_filename
            source = SourceLine(display_path(path), entry.line, linecache.getline(path, entry.line).strip())
        owner = entry.owner
        known = self.eager.entries.get(id(owner)) if owner is not None else None
        tracer.outside = (source, known.name if known else "", type(owner).__name__ if owner is not None else "")
        if entry.random is not None:
            torch.default_generator.set_state(entry.random)
        for buffer, content in entry.buffers:
            buffer.copy_(content)
        args, kwargs = _put(entry.args, values), _put(entry.kwargs, values)
        call = entry.call
        if type(call).__name__ in ("DistributedDataParallel", "DataParallel"):
            call = call.module
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(entry.grad))
            for device, dtype in entry.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            out = call(*args, **kwargs)
        return dict(zip(entry.outputs, tensors_in(out), strict=False))

    def _differentiate(self, loss: Tensor, gradient: Any, tracer: Tracer) -> bool:
        """The backward pass. Whether a gradient is not finite."""
        leaves: dict[int, Tensor] = {}
        for entry in self.tape.entries:
            if isinstance(entry.call, nn.Module):
                leaves |= {id(p): p for p in entry.call.parameters() if p.requires_grad}
            for tensor in tensors_in((entry.args, entry.kwargs)):
                if tensor.requires_grad and tensor.is_leaf:
                    leaves[id(tensor)] = tensor
        if loss.requires_grad and leaves:
            seed = gradient if isinstance(gradient, Tensor) else None
            self.eager.phase = Phase.BACKWARD
            try:
                found = torch.autograd.grad(
                    loss, list(leaves.values()), grad_outputs=seed, retain_graph=True, allow_unused=True
                )
                return any(made is not None and not bool(torch.isfinite(_dense(made)).all()) for made in found)
            except RuntimeError as problem:  # reentrant checkpointing, for one, does not allow it
                tracer.notes.append(f"the backward pass could not be run again: {problem}"[:300])
            finally:
                self.eager.phase = Phase.FORWARD
        return False

    @contextlib.contextmanager
    def _undisturbed(self, tracer: Tracer) -> Iterator[None]:
        eager = self.eager
        thread, strangers, phase, stack = eager.thread, eager.other_threads, eager.phase, eager.stack
        tape_recording = self.tape.recording
        self.tape.recording = False
        self.active = True
        eager.thread, eager.phase, eager.stack, eager.tracer = OBSERVED_BY_NOBODY, Phase.FORWARD, [], tracer
        modules = {id(m): m for e in self.tape.entries if isinstance(e.call, nn.Module) for m in e.call.modules()}
        buffers = {id(b): b for m in modules.values() for _, b in m.named_buffers(recurse=False)}
        size = sum(b.numel() * b.element_size() for b in buffers.values())
        held = tuple(buffers.values()) if size <= _COPY_BYTES else ()
        copies = [buffer.detach().clone() for buffer in held]
        names = [(m, n, b) for m in modules.values() for n, b in list(m._buffers.items())]
        hidden = remove(self.tape.mode)
        states = _random_states()
        disabled = logging.root.manager.disable
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
                warnings.catch_warnings(),
                torch.enable_grad(),
                torch.autograd._unsafe_preserve_version_counter(held),
            ):
                warnings.simplefilter("ignore")
                logging.disable(logging.CRITICAL)
                try:
                    yield
                finally:
                    with torch.no_grad():
                        for module, name, buffer in names:
                            module._buffers[name] = buffer
                        for buffer, copy in zip(held, copies, strict=True):
                            buffer.copy_(copy)
        finally:
            logging.disable(disabled)
            _restore(states)
            if hidden:
                push(self.tape.mode)
            eager.tracer = None
            eager.thread, eager.other_threads, eager.phase, eager.stack = thread, strangers, phase, stack
            self.active = False
            self.tape.recording = tape_recording


def _changed(owner: nn.Module, name: str, buffer: Tensor, version: int) -> bool:
    held: Any = getattr(owner, name, None)
    return held is not buffer or buffer._version != version


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout is torch.strided else tensor.coalesce().values()


def _put(value: Any, values: dict[Slot, Tensor]) -> Any:
    if isinstance(value, Slot):
        return values[value]
    if isinstance(value, Tensor):
        if value.grad_fn is not None:  # of an earlier step: its graph may be gone
            return value.detach().requires_grad_()
        return value
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_put(item, values) for item in value])
    if kind is dict:
        return {name: _put(item, values) for name, item in value.items()}
    return value


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _random_states() -> list[tuple[Literal["torch", "cuda", "python", "numpy"], Any]]:
    states: list[tuple[Literal["torch", "cuda", "python", "numpy"], Any]] = [
        ("torch", torch.default_generator.get_state()),
        ("python", random.getstate()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(("cuda", torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append(("numpy", numpy.random.get_state()))
    return states


def _restore(states: list[tuple[Literal["torch", "cuda", "python", "numpy"], Any]]) -> None:
    for kind, state in states:
        if kind == "torch":
            torch.default_generator.set_state(state)
        elif kind == "python":
            random.setstate(state)
        elif kind == "cuda":
            torch.cuda.set_rng_state_all(state)
        else:
            sys.modules["numpy"].random.set_state(state)
