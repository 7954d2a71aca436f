"""Sees every call of torch's function API while a step is traced."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor, is_grad_enabled

from tensonde.adapters.torch.debugging.ops import op_name
from tensonde.adapters.torch.seams.function_mode import Looker, transforming, unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.tensors import measurable
from tensonde.model.moment import Phase
from tensonde.model.randomness import RANDOM_OPS
from tensonde.model.trace import TensorFact

if TYPE_CHECKING:
    from tensonde.adapters.torch.tracing.tracer import Tracer

_VIEWS_OF_TENSORS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


class TraceMode(Looker):
    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        tracer = self.tracer
        state = tracer.state
        if state.phase is not Phase.FORWARD:  # most calls: an optimizer asks every parameter for its attributes
            return run(*args, **kwargs)
        skipped = not tracer.room() or (tracer.sated and not is_grad_enabled())
        name = None if skipped else _traced_name(func)
        if name is None or transforming():
            return run(*args, **kwargs)
        inner = len(tracer.drafts)
        guard = state.session.guard
        inputs: tuple[TensorFact, ...] = ()
        try:
            with unseen():
                inputs = tracer.facts([tensor for tensor in tensors_in((args, kwargs)) if measurable(tensor)])
        except Exception as problem:
            guard.contain("tracing an op", problem)
        draws: AbstractContextManager[None] = nullcontext()
        twin = tracer.twin
        if (
            twin is not None
            and twin.twin.seeded
            and not twin.twin.across
            and name in RANDOM_OPS
            and (inputs or state.stack)
        ):
            draws = twin.drawing(name, inputs[0].shape if inputs else ())
        across = twin is not None and twin.twin.seeded and twin.twin.across and name in RANDOM_OPS
        try:
            with draws, unseen() if across else nullcontext():
                out = twin.drawn(name, args, kwargs, run) if across and twin is not None else run(*args, **kwargs)
        except Exception as failure:
            try:
                with unseen():
                    tracer.record(func, name, args, kwargs, inputs, None, frame, f"{type(failure).__name__}: {failure}")
            except Exception as problem:
                guard.contain("tracing an op", problem)
            raise
        if isinstance(out, Tensor) or name == "setitem" or tensors_in(out):
            try:
                with unseen():
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
