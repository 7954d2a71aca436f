"""The mode through which the tape sees ops outside of modules, and the script's own looks at a loss."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensonde.adapters.torch.replay.memory import in_place
from tensonde.adapters.torch.seams.function_mode import Looker, unseen
from tensonde.adapters.torch.transforms import functorch_level as _functorch_level

if TYPE_CHECKING:
    from tensonde.adapters.torch.replay.tape import Tape

DISPATCH_NS = 1500
"""What torch takes to hand an op to a mode."""
MOST_UNLEARNED = 8
"""Calls of modules without gradients in one step, from which on they are an evaluation."""
_RANDOM = frozenset(
    {
        "dropout",
        "dropout_",
        "alpha_dropout",
        "feature_dropout",
        "feature_alpha_dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "bernoulli",
        "bernoulli_",
        "multinomial",
        "normal",
        "normal_",
        "uniform_",
        "rrelu",
        "gumbel_softmax",
        "poisson",
        "random_",
        "exponential_",
        "scaled_dot_product_attention",
        "multi_head_attention_forward",
    }
)
_QUESTIONS = frozenset({"isnan", "isfinite", "isinf"})
_TAKEN_OUT = frozenset({"item", "tolist", "numpy", "__array__", "__float__", "__format__", "__repr__"})
"""How values leave torch: to be printed, logged, saved."""
MOST_LOOKED_AT = 1 << 20
"""Elements of a tensor that is looked through for NaN when it leaves torch."""
_grad_enabled = torch.is_grad_enabled
_jit_state = torch._C._get_tracing_state
_generator = torch.default_generator


def _random_state() -> Tensor:
    with unseen():
        return _generator.get_state()


class TapeMode(Looker):
    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        tape = self.tape
        if not tape.recording or _jit_state() is not None:
            return run(*args, **kwargs)
        name: str = getattr(func, "__name__", "")
        random = _random_state() if name in _RANDOM else None
        out = run(*args, **kwargs)
        if not tape.recording or name == "backward" or (tape._unlearned >= MOST_UNLEARNED and not _grad_enabled()):
            return out
        try:
            if type(out) is Tensor or isinstance(out, Tensor | tuple | list) or in_place(name):
                if name == "__get__" and getattr(getattr(func, "__self__", None), "__name__", "") in ("grad", "shape"):
                    return out
                if _functorch_level() is not None:
                    tape.stop("torch.func is used outside of modules")
                    return out
                began = perf_counter_ns()
                with unseen():
                    tape.note(func, args, kwargs, out, random, frame)
                tape.cost_ns += perf_counter_ns() - began + DISPATCH_NS
                if name in _QUESTIONS and isinstance(out, Tensor) and isinstance(args[0], Tensor):
                    _answered(tape, args[0])
            elif name == "item" and type(out) is float and not isfinite(out):
                _answered(tape, args[0])
            if name in _TAKEN_OUT and args and isinstance(args[0], Tensor):
                look_for_nan(tape, args[0])
        except Exception as problem:
            tape.state.session.guard.contain("taping an op", problem)
        return out


def _answered(tape: Tape, tensor: Tensor) -> None:
    """The script looks at a loss: so do we, where that costs nothing."""
    if tensor.device.type != "cpu" or tensor.numel() != 1 or not tensor.requires_grad or tape.slot(tensor) is None:
        return
    with unseen():
        finite = bool(torch.isfinite(tensor.detach()))
    if not finite:
        tape.asked(tensor)


def look_for_nan(tape: Tape, tensor: Tensor) -> None:
    """What a trained model has computed without gradients leaves torch, or goes into the model again: an evaluation, or samples. NaN there
    is hardly ever meant."""
    if tensor.requires_grad or not tensor.is_floating_point() or tensor.device.type != "cpu":
        return
    if tensor.numel() > MOST_LOOKED_AT or not tape.state.step or not tape.evaluates or tape.slot(tensor) is None:
        return
    with unseen():
        bad = bool(torch.isnan(tensor.detach()).any())
    if bad:
        tape.taken_out(tensor)
