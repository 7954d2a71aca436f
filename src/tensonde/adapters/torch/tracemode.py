"""Sees every call of torch's function API while a step is traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tensonde.adapters.torch.modes import transforming
from tensonde.adapters.torch.ops import op_name
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracedtensors import measurable
from tensonde.model.moment import Phase
from tensonde.model.randomness import RANDOM_OPS
from tensonde.model.trace import TensorFact

if TYPE_CHECKING:
    from tensonde.adapters.torch.trace import Tracer

_hidden = torch._C.DisableTorchFunction
_VIEWS_OF_TENSORS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


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
        name = _traced_name(func) if tracer.room() else None
        if name is None or eager.phase is not Phase.FORWARD or transforming():
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        inner = len(tracer.drafts)
        guard = eager.session.guard
        inputs: tuple[TensorFact, ...] = ()
        try:
            with _hidden():  # from the tape's mode, which may lie below
                inputs = tracer.facts([tensor for tensor in tensors_in((args, kwargs)) if measurable(tensor)])
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
