"""Steps of a copy of the optimizer on copies of the parameters, on the batch of a recorded step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tensonde.adapters.torch.experiments.computed import bare_step
from tensonde.adapters.torch.randomness import seed
from tensonde.experiments.step import NotPossible, Trial

if TYPE_CHECKING:
    from tensonde.adapters.torch.experiments.graph import StepGraph


def trial(
    graph: StepGraph, steps: int, *, rate: float = 1.0, fresh: bool = False, own: bool = False, decay: bool = True
) -> Trial:
    if graph.accumulated:
        raise NotPossible("gradients of several batches are added up")
    if fresh:
        seed(1)
    graph.fresh = fresh
    try:
        return _trial(graph, steps, rate, own, decay)
    finally:
        graph.fresh = False


def _trial(graph: StepGraph, steps: int, rate: float, own: bool, decay: bool) -> Trial:
    if graph.holder is None:
        raise NotPossible("there is no optimizer to copy")
    memo: dict[int, Any] = {}
    clone = copy.deepcopy(graph.holder, memo)
    for group in clone.param_groups:
        group["lr"] = group["lr"] * rate
        if not decay and "weight_decay" in group:
            group["weight_decay"] = 0.0
    if own:
        clone.state.clear()
    originals = [p for group in graph.holder.param_groups for p in group["params"]]
    places = {id(graph.tensors[ref]): ref for ref in range(len(graph.tensors))}
    pairs = [(places.get(id(p)), p, memo[id(p)]) for p in originals if id(p) in memo]
    env = {ref: copied for ref, _, copied in pairs if ref is not None}
    if not env:
        raise NotPossible("the optimizer holds nothing that the step computes with")
    step = bare_step(type(clone))
    losses = []
    predicted = moved = 0.0
    cosine = scale = 1.0
    leaves = [leaf for leaf in env.values() if leaf.requires_grad]
    if not leaves:
        raise NotPossible("no parameter of the optimizer wants a gradient")
    for k in range(steps + 1):
        with torch.enable_grad():
            loss = graph.compute(env, [graph.loss], grad=True)[graph.loss]
        losses.append(float(loss.detach()))
        if k == steps or not np.isfinite(losses[-1]) or (k > 1 and graph.seconds_left() < 0):
            break
        if k and not loss.requires_grad:
            raise NotPossible("the loss does not lead back to a parameter")
        slopes = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else ()
        if k == 0 and not own:  # what the training has, clipped and scaled as it is
            for _, original, copied in pairs:
                copied.grad = original.grad.detach().clone() if original.grad is not None else None
        else:
            for leaf, gradient in zip(leaves, slopes, strict=False):
                leaf.grad = gradient.clone() if gradient is not None else None
        before = [leaf.detach().clone() for leaf in leaves] if k == 0 else []
        if k == 0:
            cosine, scale = _compared([leaf.grad for leaf in leaves], slopes)
        with torch.no_grad():
            step(clone)
        for leaf, was, slope in zip(leaves, before, slopes, strict=False):  # none after the first step
            change = leaf.detach() - was
            moved = max(moved, float(change.norm() / was.norm().clamp(min=1e-12)))
            predicted += float((_real(change) * _real(slope)).sum()) if slope is not None else 0.0
    return Trial(tuple(losses), predicted, moved, cosine, scale)


def _compared(had: Sequence[Tensor | None], made: Sequence[Tensor | None]) -> tuple[float, float]:
    """The cosine between two sets of gradients, and how many times larger the first are."""
    product = first = second = 0.0
    for a, b in zip(had, made, strict=False):
        if a is not None and b is not None and a.layout is b.layout is torch.strided:
            one, other = _real(a).double(), _real(b).double()
            product += float((one * other).sum())
            first += float(one.square().sum())
            second += float(other.square().sum())
    if not first or not second:
        return 1.0, 1.0
    return product / (first * second) ** 0.5, (first / second) ** 0.5


def _real(tensor: Tensor) -> Tensor:
    """A complex tensor as pairs: a loss changes with both parts as the gradient says."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
