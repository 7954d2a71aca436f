"""One step op by op: a torch-function mode that notes what each call of the function API took and gave.

`tracemode` is where calls are seen, `tracedtensors` what is known of tensors, `tracedgradients` how gradients come. Nothing here
keeps a tensor alive.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.run.naming import is_made
from tensonde.adapters.torch.run.outside import makers
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import look, look_away, unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.arguments import named
from tensonde.adapters.torch.tracing.gradients import Draft, TracedGradients
from tensonde.adapters.torch.tracing.measure import Measure, nonfinite
from tensonde.adapters.torch.tracing.ops import TraceMode
from tensonde.adapters.torch.tracing.own_gradients import OwnGradients
from tensonde.adapters.torch.tracing.tensors import TracedTensors, measurable
from tensonde.adapters.torch.tracing.weights import Weights
from tensonde.adapters.torch.twins import TwinFeed
from tensonde.model.moment import Phase
from tensonde.model.site import SourceLine
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace
from tensonde.program.frames import frame_line, is_user, owner_of
from tensonde.session.options import Twin

MOST_OPS = 20_000
MOST_WITHOUT_GRAD = 16
"""Calls of models without gradients that one trace shows: a rollout of an agent has thousands."""


class Tracer:
    """One trace. Belongs to the training thread."""

    def __init__(
        self,
        state: RunState,
        *,
        twin: TwinFeed | None = None,
        boundary: CodeType | None = None,
        sketch: bool = False,
    ) -> None:
        """`boundary`: frames from this code on are not the user's line, `outside` is (see `replay.py`).

        With `sketch`, tensors are also sketched, so that another run can be compared with this one.
        """
        self.state = state
        self.twin = twin
        self.boundary = boundary
        self.outside: tuple[SourceLine | None, str, str] | None = None
        """What is re-executed now: the line, the module's name and type where the training ran it."""
        self.loss: int | None = None
        self.notes: list[str] = []
        self.drafts: list[Draft] = []
        self.mode = TraceMode(self)
        self.paused = True
        measure = Measure(sketch=sketch)
        options = state.session.options
        own = OwnGradients(state.session.guard) if sketch and state.session.world > 1 else None
        faint = (options.twin or Twin()).faint
        self.weights = Weights(measure, thorough=options.window != (0, 1), faint=faint, own=own)
        self.tensors = TracedTensors(state, measure, self.weights, twin)
        self.facts, self._fact = self.tensors.facts, self.tensors.fact
        self.gradients = TracedGradients(measure, state.session.guard)
        self._follow = self.gradients.follow
        self._calls: list[CallRecord] = []
        self._open: list[int] = []
        """Numbers of the module calls that are under way, outermost first."""
        self._call_count = self._without_grad = 0
        self.sated = False
        """Roots have been called without gradients so often that this is an evaluation, or a rollout: no more of it is traced."""
        self._counts: dict[int, Counter[str]] = {}

    # -- what the adapter tells ------------------------------------------------------------------

    def entered(self, entry: ModuleRecord) -> None:
        """A module is called: its ops are counted from 0."""
        self._counts.pop(id(entry), None)

    def root_called(self, *, grad: bool) -> None:
        """A module is called, and no other one is running."""
        self._without_grad += not grad
        self.sated = not grad and self._without_grad > MOST_WITHOUT_GRAD
        if self.sated and self._without_grad == MOST_WITHOUT_GRAD + 1:
            self.notes.append(f"only the first {MOST_WITHOUT_GRAD} calls of models without gradients were traced")

    def differentiated(self, loss: Tensor) -> None:
        """This is a loss. The first one that is not finite counts, else the last."""
        producer = self.tensors.producer(loss)
        if producer is not None and (self.loss is None or not nonfinite(self.output(self.loss))):
            self.loss = producer

    def room(self) -> bool:
        """Whether more ops can be noted."""
        return len(self.drafts) < MOST_OPS

    def output(self, index: int) -> dict[str, float]:
        outputs = self.drafts[index].fields["outputs"]
        return dict(outputs[0].stats) if outputs else {}

    def finish(
        self,
        step: int,
        reason: Literal["first", "stage", "replay", "exception", "following", "inspect"],
        *,
        exact: bool = True,
    ) -> Trace:
        if len(self.drafts) >= MOST_OPS:
            self.notes.append(f"only the first {MOST_OPS} ops were traced")
        if reason not in ("exception", "inspect"):
            self._note_makers(step)
        ops = tuple(OpRecord(**draft.fields, gradient=draft.gradient) for draft in self.drafts)
        self.gradients.finish()
        return Trace(step, reason, ops, exact, self.loss, tuple(self.notes), tuple(self._calls), self.weights.records())

    def _note_makers(self, step: int) -> None:
        try:
            for maker in makers(self.tensors.spoilt()):
                self.state.session.note("spoilt_outside", step=step, **maker)
        except Exception as problem:
            self.state.session.guard.contain("following a value back", problem)

    # -- module calls ----------------------------------------------------------------------------

    def call_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What `call_ended` wants to have back."""
        number, parent = self._call_count, self._open[-1] if self._open else None
        self._call_count += 1
        self._open.append(number)
        with unseen():
            given = [tensor for tensor in tensors_in((args, kwargs)) if measurable(tensor)]
            inputs = self.facts(given) if number < MOST_OPS else ()
        return {"number": number, "parent": parent, "first": len(self.drafts), "inputs": inputs}

    def call_ended(self, begun: dict[str, Any], module: nn.Module, out: Any) -> None:
        """`out` is None where the call raised."""
        while self._open and self._open.pop() != begun["number"]:
            pass
        entry = self.state.roster.entries.get(id(module))
        if entry is None or len(self._calls) >= MOST_OPS:
            return
        with unseen():
            outputs = self.facts([tensor for tensor in tensors_in(out) if measurable(tensor)])
            # Running statistics are written without a new version, so they are always measured.
            state = [self._fact(buffer, anew=True) for buffer in module._buffers.values() if _is_state(buffer)]
        self._calls.append(
            CallRecord(
                **begun,
                module=entry.name,
                type=entry.type,
                outputs=outputs,
                state=tuple(state),
                last=len(self.drafts),
                training=module.training,
                grad_enabled=torch.is_grad_enabled(),
            )
        )

    # -- ops -------------------------------------------------------------------------------------

    def record(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: tuple[TensorFact, ...],
        out: Any,
        frame: FrameType,
        error: str = "",
    ) -> None:
        index = len(self.drafts)
        if index >= MOST_OPS:
            return
        stack = self.state.stack
        entry = stack[-1] if stack else None
        source, module, kind, training = self._place(entry, frame)
        counter = self._counts.setdefault(id(entry) if entry is not None else hash(module), Counter())
        site = f"{module}/{name}#{counter[name]}"
        counter[name] += 1
        if name == "setitem" and args:  # gives nothing, and changes its first argument
            out = args[0]
        given = [tensor for tensor in tensors_in(out) if measurable(tensor)]
        if self.twin is not None and not inputs and entry is None:
            for tensor in given:
                self.twin.met(tensor)
        draft = Draft(
            {
                "index": index,
                "op": name,
                "site": site,
                "module": module,
                "module_type": kind,
                "source": source,
                "inputs": inputs,
                "outputs": (),
                "arguments": named(name, func, args, kwargs),
                "phase": Phase.FORWARD,
                "training": training,
                "grad_enabled": torch.is_grad_enabled(),
                "autocast": autocast_dtype(given[0] if given else None),
                "error": error,
            }
        )
        self.drafts.append(draft)  # before its outputs are known to come from it: measuring them may fail
        draft.fields["outputs"] = tuple(self._fact(tensor, index) for tensor in given)
        if torch.is_grad_enabled():
            for k, tensor in enumerate(given):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    self._follow(draft, index, tensor, (args, kwargs), first=k == 0)

    def _place(
        self, entry: ModuleRecord | None, frame: FrameType | None
    ) -> tuple[SourceLine | None, str, str, bool | None]:
        """The user's line, and the module whose code it is."""
        found: FrameType | None = None
        walk = frame
        outside = None
        while walk is not None:
            code = walk.f_code
            if code is self.boundary:
                outside = self.outside
                break
            rank = owner_of(code)
            if rank == 2:
                found = walk
                break
            if rank == 1 and found is None:
                found = walk
            walk = walk.f_back
        source = frame_line(found) if found is not None else outside[0] if outside else None
        if outside is not None and found is not None and not is_user(found.f_code) and outside[0] is not None:
            source = outside[0]
        if entry is not None:
            module = entry.ref()
            return source, entry.name, entry.type, module.training if module is not None else None
        if outside is not None:
            return source, outside[1], outside[2], None
        owner = module_of(found)
        if owner is not None:
            known = self.state.roster.entries.get(id(owner))
            return source, known.name if known else "", type(owner).__name__, owner.training
        return source, "", "", None

    # -- on and off ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Also custom autograd functions are ops, which modes do not see."""
        self.paused = False
        look(self.mode)
        torch.autograd.Function.apply = classmethod(self._apply)

    def pause(self) -> None:
        self.paused = True
        look_away(self.mode)
        torch.autograd.Function.apply = _APPLY

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Off for a while, and then as before."""
        apply = torch.autograd.Function.__dict__["apply"]
        was_on = look_away(self.mode)
        torch.autograd.Function.apply = _APPLY
        try:
            yield
        finally:
            if was_on:
                look(self.mode)
            torch.autograd.Function.apply = apply

    def _apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return _APPLY.__func__(function, *args, **kwargs)

        call.__name__ = function.__name__
        return self.mode.called(call, args, kwargs, call, sys._getframe(1))


_APPLY = torch.autograd.Function.__dict__["apply"]


_MOST_STATE = 1 << 20


def _is_state(buffer: Tensor | None) -> bool:
    return buffer is not None and measurable(buffer) and 0 < buffer.numel() <= _MOST_STATE


def module_of(frame: FrameType | None) -> nn.Module | None:
    """The module whose method runs there, also one that is not called as a module."""
    if frame is None or frame.f_code.co_varnames[:1] != ("self",):
        return None
    found = frame.f_locals.get("self")
    return found if isinstance(found, nn.Module) and is_made(found) else None


def autocast_dtype(like: Tensor | None) -> str | None:
    device = like.device.type if like is not None else "cpu"
    try:
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    except RuntimeError:  # a device without autocast
        pass
    return None
