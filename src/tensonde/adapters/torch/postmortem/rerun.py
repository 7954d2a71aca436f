"""A module's forward once more, op by op, when the program is ending: which op of it changed what.

Runs the user's forward code a second time, so it happens only where the answer cannot be had otherwise, everything is put back as
after a replay, and the finding says that it was done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tensonde.adapters.torch.debugging.ops import op_name
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.undisturbed import restored, unheard
from tensonde.adapters.torch.seams.current import suspended
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.site import SourceLine
from tensonde.program.frames import frame_line, user_frame

MOST_OPS = 20_000


@dataclass(slots=True)
class Op:
    name: str
    line: SourceLine | None
    module: nn.Module | None
    inputs: list[Tensor]
    outputs: list[Tensor]
    shapes: list[tuple[int, ...]]
    """Of the inputs, before the op ran."""
    out_shapes: list[tuple[int, ...]]
    made: Any = None
    """The autograd node that the op hung on its first output."""
    changed: list[Tensor] = field(default_factory=list)
    """Inputs that the op changed in place."""


class _Recorder(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = op_name(func) or _plumbing(func)
        if name is None or len(self.ops) >= MOST_OPS:
            return func(*args, **kwargs)
        inputs = tensors_in((args, kwargs))
        versions = [tensor._version for tensor in inputs]
        shapes = [tuple(tensor.shape) for tensor in inputs]
        out = func(*args, **kwargs)
        outputs = tensors_in(out)
        frame = sys._getframe(1)
        op = Op(
            name, frame_line(user_frame(frame)), _module(frame), inputs, outputs, shapes,
            [tuple(tensor.shape) for tensor in outputs],
            outputs[0].grad_fn if outputs else None,
        )  # fmt: skip
        op.changed = [tensor for tensor, was in zip(inputs, versions, strict=True) if tensor._version != was]
        self.ops.append(op)
        return out


def _plumbing(func: Any) -> str | None:
    name = getattr(func, "__name__", "")
    return name if name in ("detach", "detach_", "item", "data", "numpy", "tolist") else None


def _module(frame: Any) -> nn.Module | None:
    while frame is not None:
        if frame.f_code.co_name == "_call_impl" and isinstance(found := frame.f_locals.get("self"), nn.Module):
            return found
        frame = frame.f_back
    return None


@dataclass(frozen=True, slots=True)
class Rerun:
    ops: list[Op]
    output: Any
    error: str = ""


def rerun(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rerun:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rerun([], None, "not in a distributed run: the other ranks would have to take part")
    before = Before([module, args, kwargs])
    if before.trouble:
        return Rerun([], None, before.trouble)
    recorder = _Recorder()
    output, error = None, ""
    with suspended(), unheard(), restored(before, []):
        try:
            with recorder:
                output = copy_context().run(module, *args, **kwargs)
        except Exception as problem:  # it may well fail again: the ops before are what is wanted
            error = f"{type(problem).__name__}: {problem}"
    return Rerun(recorder.ops, output, error)
