"""One step op by op: a torch-function mode that notes what each call of the function API took and gave.

Gradients come from hooks on the autograd nodes that an op made: they tell the gradient of the op's output, and
whether the op itself turned a finite gradient into NaN or Inf. Nothing here keeps a tensor alive; the autograd
nodes are kept until the trace ends.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sonde.adapters.torch.arguments import named
from sonde.adapters.torch.frames import is_user, line_of, rank_of
from sonde.adapters.torch.measure import Measure, nonfinite
from sonde.adapters.torch.modes import push, remove
from sonde.adapters.torch.ops import op_name
from sonde.adapters.torch.tensors import dtype_name, tensors_in
from sonde.adapters.torch.weights import Weights
from sonde.model.moment import Phase
from sonde.model.randomness import RANDOM_OPS
from sonde.model.site import SourceLine
from sonde.model.trace import CallRecord, OpRecord, TensorFact, Trace

if TYPE_CHECKING:
    from sonde.adapters.torch.eager import Eager
    from sonde.adapters.torch.entry import Entry

MOST_OPS = 20_000
_NODES = 64
"""Autograd nodes of one op that are watched."""
_functorch_level = torch._C._functorch.maybe_current_level
_jit_state = torch._C._get_tracing_state
_hidden = torch._C.DisableTorchFunction
_VIEWS_OF_TENSORS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


class Known(weakref.ref[Tensor]):
    """A tensor of this trace: its number, the op that gave it, and its digest while its version is the same."""

    __slots__ = ("key", "number", "producer", "stats", "version")
    key: int
    number: int
    producer: int | None
    stats: dict[str, float]
    version: int


class Draft:
    """An op whose gradient may still come."""

    __slots__ = ("fields", "gradient")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.gradient: dict[str, float] = {}


class Tracer:
    """One trace. Belongs to the training thread."""

    def __init__(self, eager: Eager, *, boundary: CodeType | None = None, sketch: bool = False) -> None:
        """`boundary`: frames from this code on are not the user's line, `outside` is (see `replay.py`).

        With `sketch`, tensors are also sketched, so that another run can be compared with this one.
        """
        self.eager = eager
        self.boundary = boundary
        self.outside: tuple[SourceLine | None, str, str] | None = None
        """What is re-executed now: the line, the module's name and type where the training ran it."""
        self.loss: int | None = None
        self.notes: list[str] = []
        self.drafts: list[Draft] = []
        self.mode = TraceMode(self)
        self.paused = True
        self._known: dict[int, Known] = {}
        self._numbers = 0
        self._measure = Measure(sketch=sketch)
        self.weights = Weights(self._measure, thorough=eager.session.options.window != (0, 1))
        self._calls: list[CallRecord] = []
        self._open: list[int] = []
        """Numbers of the module calls that are under way, outermost first."""
        self._call_count = 0
        self._counts: dict[int, Counter[str]] = {}
        self._nodes: dict[Any, int] = {}
        self._order = 0
        self._buffers: dict[int, str] = {}
        self._modules_known = 0

    # -- what the adapter tells ------------------------------------------------------------------

    def entered(self, entry: Entry) -> None:
        """A module is called: its ops are counted from 0."""
        self._counts.pop(id(entry), None)

    def differentiated(self, loss: Tensor) -> None:
        """This is a loss. The first one that is not finite counts, else the last."""
        known = self._known.get(id(loss))
        if known is None or known.producer is None:
            return
        if self.loss is None or not nonfinite(self.output(self.loss)):
            self.loss = known.producer

    def output(self, index: int) -> dict[str, float]:
        outputs = self.drafts[index].fields["outputs"]
        return dict(outputs[0].stats) if outputs else {}

    def finish(
        self, step: int, reason: Literal["first", "replay", "exception", "following", "inspect"], *, exact: bool = True
    ) -> Trace:
        if len(self.drafts) >= MOST_OPS:
            self.notes.append(f"only the first {MOST_OPS} ops were traced")
        ops = tuple(OpRecord(**draft.fields, gradient=draft.gradient) for draft in self.drafts)
        self._nodes.clear()
        return Trace(step, reason, ops, exact, self.loss, tuple(self.notes), tuple(self._calls), self.weights.records())

    # -- module calls ----------------------------------------------------------------------------

    def call_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What `call_ended` wants to have back."""
        number, parent = self._call_count, self._open[-1] if self._open else None
        self._call_count += 1
        self._open.append(number)
        with torch._C.DisableTorchFunction():
            given = [tensor for tensor in tensors_in((args, kwargs)) if _measurable(tensor)]
            inputs = self.facts(given) if number < MOST_OPS else ()
        return {"number": number, "parent": parent, "first": len(self.drafts), "inputs": inputs}

    def call_ended(self, begun: dict[str, Any], module: nn.Module, out: Any) -> None:
        """`out` is None where the call raised."""
        while self._open and self._open.pop() != begun["number"]:
            pass
        entry = self.eager.entries.get(id(module))
        if entry is None or len(self._calls) >= MOST_OPS:
            return
        with torch._C.DisableTorchFunction():
            outputs = self.facts([tensor for tensor in tensors_in(out) if _measurable(tensor)])
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

    def facts(self, tensors: list[Tensor]) -> tuple[TensorFact, ...]:
        return tuple(self._fact(tensor) for tensor in tensors)

    def _fact(self, tensor: Tensor, producer: int | None = None, *, anew: bool = False) -> TensorFact:
        key = id(tensor)
        known = self._known.get(key)
        if known is None:
            known = Known(tensor, self._gone)
            known.key, known.number, known.producer, known.version = key, self._numbers, producer, -1
            self._numbers += 1
            self._known[key] = known
            outside = producer is None and not self.eager.stack
            if outside and self.eager.twin is not None and not self._name(key):
                self.eager.twin.met(tensor)
        elif producer is not None:
            known.producer = producer
        version = 0 if tensor.is_inference() else tensor._version
        if known.version != version or anew:
            known.version = version
            known.stats = self._measure(tensor)
        return TensorFact(
            known.number,
            tuple(tensor.shape),
            dtype_name(tensor),
            tensor.requires_grad,
            self._name(key),
            known.producer,
            known.stats,
        )

    def _name(self, key: int) -> str:
        """Of a parameter or buffer; modules may become known in the course of the trace."""
        parameters = self.eager.parameters
        if key in parameters.names:
            return parameters.names[key][0]
        if key in self.weights.gradients:
            return self.weights.gradients[key]
        if len(self.eager.entries) != self._modules_known:
            self._modules_known = len(self.eager.entries)
            for entry in list(self.eager.entries.values()):
                module = entry.ref()
                prefix = parameters.prefix_of(entry.name) if entry.name in self.eager.roots else f"{entry.name}."
                for attribute, held in (module._buffers if module is not None else {}).items():
                    if held is not None:
                        self._buffers.setdefault(id(held), prefix + attribute)
        return self._buffers.get(key, "")

    def _gone(self, known: weakref.ref[Tensor]) -> None:
        if isinstance(known, Known) and self._known.get(known.key) is known:
            del self._known[known.key]

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
        stack = self.eager.stack
        entry = stack[-1] if stack else None
        source, module, kind, training = self._place(entry, frame)
        counter = self._counts.setdefault(id(entry) if entry is not None else hash(module), Counter())
        site = f"{module}/{name}#{counter[name]}"
        counter[name] += 1
        if name == "setitem" and args:  # gives nothing, and changes its first argument
            out = args[0]
        given = [tensor for tensor in tensors_in(out) if _measurable(tensor)]
        if self.eager.twin is not None and not inputs and entry is None:
            for tensor in given:
                self.eager.twin.met(tensor)
        outputs = tuple(self._fact(tensor, index) for tensor in given)
        draft = Draft(
            {
                "index": index,
                "op": name,
                "site": site,
                "module": module,
                "module_type": kind,
                "source": source,
                "inputs": inputs,
                "outputs": outputs,
                "arguments": named(name, func, args, kwargs),
                "phase": Phase.FORWARD,
                "training": training,
                "grad_enabled": torch.is_grad_enabled(),
                "autocast": autocast_dtype(given[0] if given else None),
                "error": error,
            }
        )
        self.drafts.append(draft)
        if torch.is_grad_enabled():
            for k, tensor in enumerate(given):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    self._follow(draft, index, tensor, (args, kwargs), first=k == 0)

    def _place(self, entry: Entry | None, frame: FrameType | None) -> tuple[SourceLine | None, str, str, bool | None]:
        """The user's line, and the module whose code it is."""
        found: FrameType | None = None
        walk = frame
        outside = None
        while walk is not None:
            code = walk.f_code
            if code is self.boundary:
                outside = self.outside
                break
            rank = rank_of(code)
            if rank == 2:
                found = walk
                break
            if rank == 1 and found is None:
                found = walk
            walk = walk.f_back
        source = line_of(found) if found is not None else outside[0] if outside else None
        if outside is not None and found is not None and not is_user(found.f_code) and outside[0] is not None:
            source = outside[0]
        if entry is not None:
            module = entry.ref()
            return source, entry.name, entry.type, module.training if module is not None else None
        if outside is not None:
            return source, outside[1], outside[2], None
        owner = module_of(found)
        if owner is not None:
            known = self.eager.entries.get(id(owner))
            return source, known.name if known else "", type(owner).__name__, owner.training
        return source, "", "", None

    # -- the backward pass -----------------------------------------------------------------------

    def _follow(self, draft: Draft, index: int, tensor: Tensor, given: Any, *, first: bool) -> None:
        """Watches the autograd nodes between this output and the op's inputs."""
        top = tensor.grad_fn
        ends = {source.grad_fn for source in tensors_in(given) if source.grad_fn is not None and source is not tensor}
        waiting = [top]
        for _ in range(_NODES):
            if not waiting:
                return
            node = waiting.pop()
            if node is None or node in ends or node in self._nodes or node.name().endswith("AccumulateGrad"):
                continue
            self._nodes[node] = index
            node.register_hook(self._watcher(draft, tensor.output_nr if node is top and first else None))
            waiting += [following for following, _ in node.next_functions]

    def _watcher(self, draft: Draft, number: int | None) -> Callable[[Any, Any], None]:
        def passed(gradients_in: tuple[Any, ...], gradients_out: tuple[Any, ...]) -> None:
            try:
                self._passed(draft, number, gradients_in, gradients_out)
            except Exception as problem:
                self.eager.session.guard.contain("tracing a gradient", problem)

        return passed

    def _passed(self, draft: Draft, number: int | None, gradients_in: Any, gradients_out: Any) -> None:
        with torch._C.DisableTorchFunction():
            incoming = [self._measure(gradient) if isinstance(gradient, Tensor) else {} for gradient in gradients_out]
            if number is not None and number < len(incoming) and (incoming[number] or not draft.gradient):
                kept = {key: value for key, value in draft.gradient.items() if key.startswith("in.")}
                draft.gradient = {**incoming[number], **kept}
            if any(nonfinite(stats) for stats in incoming) or "in.order" in draft.gradient:
                return
            made = [self._measure(gradient) for gradient in gradients_in if isinstance(gradient, Tensor)]
            bad = [stats for stats in made if nonfinite(stats)]
            if bad:
                self._order += 1
                draft.gradient["in.order"] = float(self._order)
                for name in ("nan", "pos_inf", "neg_inf"):
                    draft.gradient[f"in.{name}"] = sum(stats[name] for stats in bad)
                draft.gradient |= {f"in.{key}": value for key, value in bad[0].items() if key.startswith("bad_row")}

    # -- on and off ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Also custom autograd functions are ops, which modes do not see."""
        self.paused = False
        push(self.mode)
        torch.autograd.Function.apply = classmethod(self._apply)

    def pause(self) -> None:
        self.paused = True
        remove(self.mode)
        torch.autograd.Function.apply = _APPLY

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Off for a while, and then as before: also where torch has taken the mode off for the time of an op."""
        apply = torch.autograd.Function.__dict__["apply"]
        was_on = remove(self.mode)
        torch.autograd.Function.apply = _APPLY
        try:
            yield
        finally:
            if was_on:
                push(self.mode)
            torch.autograd.Function.apply = apply

    def _apply(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return _APPLY.__func__(function, *args, **kwargs)

        call.__name__ = function.__name__
        return self.mode.__torch_function__(call, (), args, kwargs)


_APPLY = torch.autograd.Function.__dict__["apply"]


class TraceMode(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tracer = self.tracer
        eager = tracer.eager
        name = _traced_name(func)
        if name is None or eager.phase is not Phase.FORWARD or transforming():
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        inner = len(tracer.drafts)
        guard = eager.session.guard
        inputs: tuple[TensorFact, ...] = ()
        try:
            with _hidden():  # from the tape's mode, which may lie below
                inputs = tracer.facts([tensor for tensor in tensors_in((args, kwargs)) if _measurable(tensor)])
        except Exception as problem:
            guard.contain("tracing an op", problem)
        draws: AbstractContextManager[None] = nullcontext()
        twin = eager.twin
        if twin is not None and twin.twin.seeded and name in RANDOM_OPS and (inputs or eager.stack):
            draws = twin.drawing(name, inputs[0].shape if inputs else ())
        try:
            with draws:
                out = func(*args, **kwargs)
        except Exception as failure:
            try:
                with _hidden():
                    tracer.record(func, name, args, kwargs, inputs, None, frame, f"{type(failure).__name__}: {failure}")
            except Exception as problem:
                guard.contain("tracing an op", problem)
            raise
        if isinstance(out, Tensor) or name == "setitem" or tensors_in(out):
            try:
                with _hidden():
                    tracer.record(func, name, args, kwargs, inputs, out, frame)
                if len(tracer.drafts) > inner + 1:  # ops of a custom autograd function, which came before it
                    tracer.drafts[-1].fields["arguments"]["inner"] = inner
            except Exception as problem:
                guard.contain("tracing an op", problem)
        return out


def _traced_name(func: Callable[..., Any]) -> str | None:
    """Like `op_name`, and also what merely passes a tensor on, because the path of values leads through it."""
    name = op_name(func)
    if name is not None:
        return name
    bare: str = getattr(func, "__name__", "")
    if bare == "__get__":
        bare = getattr(getattr(func, "__self__", None), "__name__", "")
        return bare if bare in _VIEWS_OF_TENSORS else None
    if bare == "detach":
        return bare
    return bare.strip("_") if bare.startswith("_") and not bare.startswith("__") else None


def transforming() -> bool:
    """Inside a function transform or torch.jit.trace: tensors have no values, or what we do would become part
    of the result."""
    return _functorch_level() is not None or _jit_state() is not None


def _measurable(tensor: Any) -> bool:
    kind = type(tensor)
    return kind is Tensor or kind is nn.Parameter or kind is nn.Buffer


_MOST_STATE = 1 << 20


def _is_state(buffer: Tensor | None) -> bool:
    return buffer is not None and _measurable(buffer) and 0 < buffer.numel() <= _MOST_STATE


def module_of(frame: FrameType | None) -> nn.Module | None:
    """The module whose method runs there, also one that is not called as a module."""
    if frame is None or frame.f_code.co_varnames[:1] != ("self",):
        return None
    found = frame.f_locals.get("self")
    return found if isinstance(found, nn.Module) else None


def autocast_dtype(like: Tensor | None) -> str | None:
    device = like.device.type if like is not None else "cpu"
    try:
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    except RuntimeError:  # a device without autocast
        pass
    return None
