"""What the functions with a backward of the user's own give for random gradients, while the step that has just been run again is still guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensonde.adapters.torch.experiments.recorder import Recorder
from tensonde.experiments.step import Array, OwnFunction
from tensonde.program.frames import is_user
from tensonde.program.habits import result_line
from tensonde.program.lines import source_line

MOST = 4
MOST_VALUES = 1 << 20
"""Of what a function gives."""


def own_functions(recorder: Recorder) -> list[OwnFunction]:
    """Each as it was first applied."""
    found: dict[Any, OwnFunction | None] = {}
    for ref, (tensor, maker) in enumerate(zip(recorder.tensors, recorder.maker, strict=True)):
        kind = getattr(type(tensor.grad_fn), "_forward_cls", None) if maker >= 0 else None
        if kind is None or kind in found or len(found) >= MOST or recorder.nodes[maker].grad:
            continue
        code = getattr(getattr(vars(kind).get("backward"), "__func__", None), "__code__", None)
        code = getattr(getattr(vars(kind).get("backward"), "__func__", None), "__wrapped__", None) or code
        code = getattr(code, "__code__", code)
        if code is None or not is_user(code):
            continue
        found[kind] = _asked(recorder, kind.__name__, ref, tensor, code)
    return [function for function in found.values() if function is not None]


def _asked(recorder: Recorder, name: str, ref: int, tensor: Tensor, code: Any) -> OwnFunction | None:
    node: Any = tensor.grad_fn
    alone = sum(other.grad_fn is node for other in recorder.tensors) == 1 and tensor.output_nr == 0
    if not alone or not tensor.is_floating_point() or tensor.numel() > MOST_VALUES:
        return None
    inputs = _inputs(recorder, node)
    draw = np.random.Generator(np.random.PCG64(5))
    seed = draw.standard_normal(tuple(tensor.shape))
    try:
        given = node.apply(torch.from_numpy(seed).to(tensor.dtype))
    except Exception:  # it is the user's code, given what it has not seen before
        return None
    gradients: dict[int, Array] = {}
    for number, gradient in zip(inputs, given if isinstance(given, tuple) else (given,), strict=False):
        if number is not None and isinstance(gradient, Tensor):
            gradients[number] = gradient.detach().to(torch.float64).numpy().copy()
    line = result_line(code)
    source = source_line(code.co_filename, line) if line is not None else None
    return OwnFunction(name, ref, seed, gradients, source) if gradients else None


def _inputs(recorder: Recorder, node: Any) -> list[int | None]:
    """The values that it was given, as many as it wants gradients for; None where it is not known which."""
    made = {
        (id(t.grad_fn), t.output_nr): ref
        for ref, t in enumerate(recorder.tensors)
        if t.grad_fn is not None and t.is_floating_point()
    }
    found: list[int | None] = []
    for before, place in node.next_functions:
        leaf = getattr(before, "variable", None)
        if leaf is not None:
            known = recorder.numbers.get(id(leaf))
            found.append(int(known) if known is not None else None)
        else:
            found.append(made.get((id(before), place)) if before is not None else None)
    return found
