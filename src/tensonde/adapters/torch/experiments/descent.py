"""What values would make the loss of a recorded step smallest: constants in the place of outputs, or any numbers at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tensonde.adapters.torch.experiments.computed import array_of, bare_step, spread
from tensonde.experiments.step import Fit, NotPossible

if TYPE_CHECKING:
    from tensonde.adapters.torch.experiments.graph import Env, StepGraph


CLOSE, PATIENCE = 1e-4, 8
"""Of the loss: what so many computations gain where a constant is as good as found."""


class _Enough(Exception):
    """The loss is low enough, or hardly falls any more."""


def fit(graph: StepGraph, values: Mapping[int, int], tied: Mapping[int, int] | None = None) -> Fit:
    start = {ref: graph.tensors[ref].detach() for ref in values}
    leaders = {ref: (tied or {}).get(ref, ref) for ref in values}
    best = _fit(graph, values, start, leaders, "mean")
    own = graph.loss_of({})
    if best is None or own < best.loss < 2 * own:  # else it is clear which of the two is better
        found = _fit(graph, values, start, leaders, "zero")
        best = found if best is None or (found is not None and found.loss < best.loss) else best
    if best is None:
        raise NotPossible("no constant makes the loss smallest")
    return best


def _fit(graph: StepGraph, values: Mapping[int, int], base: Env, leaders: Mapping[int, int], begin: str) -> Fit | None:
    vectors = {}
    for ref in dict.fromkeys(leaders.values()):
        dim, tensor = values[ref], base[ref].to(torch.float32)
        axes = [d for d in range(tensor.ndim) if d != dim % tensor.ndim]
        mean = tensor.mean(axes) if axes else tensor
        vectors[ref] = (mean if begin == "mean" else torch.zeros_like(mean)).clone().requires_grad_()
    if not _descend(
        graph,
        list(vectors.values()),
        lambda: {ref: spread(vectors[leaders[ref]], base[ref], dim) for ref, dim in values.items()},
        close=CLOSE,
    ):
        return None
    last = {ref: vectors[leaders[ref]].detach() for ref in values}
    loss = graph.loss_of({ref: spread(last[ref], base[ref], dim) for ref, dim in values.items()})
    if not np.isfinite(loss) or any(not bool(torch.isfinite(v).all()) for v in last.values()):
        return None
    return Fit(loss, {ref: array_of(vector) for ref, vector in last.items()})


def floor(graph: StepGraph, values: Sequence[int], enough: float) -> float:
    base = {ref: graph.tensors[ref].detach() for ref in values}
    draw = torch.Generator().manual_seed(0)
    apart = {ref: t + torch.randn(t.shape, generator=draw, device="cpu").to(t.device) for ref, t in base.items()}
    found = [
        graph.loss_of({}),
        _lowest(graph, base, enough),
        _lowest(graph, apart, enough),
    ]  # where an activation is off, nothing moves
    return min(loss for loss in found if np.isfinite(loss))


def _lowest(graph: StepGraph, start: Env, enough: float) -> float:
    free = {ref: tensor.to(torch.float32).clone().requires_grad_() for ref, tensor in start.items()}
    leaves = list(free.values())
    _descend(graph, leaves, lambda: {ref: leaf.to(start[ref].dtype) for ref, leaf in free.items()}, enough)
    return graph.loss_of({ref: leaf.detach().to(start[ref].dtype) for ref, leaf in free.items()})


def _descend(
    graph: StepGraph,
    leaves: list[Tensor],
    changed: Callable[[], Env],
    enough: float = float("-inf"),
    close: float = 0.0,
) -> bool:
    """Moves the leaves until the loss is smallest with what `changed` makes of them, or below `enough`; whether numbers stayed within bounds. `close`: of the loss, what is
    no gain; where there is none for a while, the leaves are what they were when the loss was lowest."""
    descent = torch.optim.LBFGS.__new__(torch.optim.LBFGS)
    _made_quietly(descent, leaves)
    lowest = _Lowest([], float("inf"))
    factor = 0.0
    """A mean over many numbers has small slopes, which the descent would take for the end."""

    def closure() -> Tensor:
        for leaf in leaves:
            leaf.grad = None
        with torch.enable_grad():
            loss = graph.compute(changed(), [graph.loss], grad=True)[graph.loss]
        if not loss.requires_grad:
            raise NotPossible("the loss does not lead back to what the model gives")
        value = float(loss.detach())
        if value < enough or (close and lowest.settled(value, leaves, close)):
            raise _Enough
        slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        nonlocal factor
        if not factor:
            steepest = max(
                (float(slope.abs().max()) for slope in slopes if slope is not None and slope.numel()), default=0.0
            )
            factor = max(1.0, 1 / steepest) if 0 < steepest < float("inf") else 1.0
        for leaf, slope in zip(leaves, slopes, strict=True):
            leaf.grad = slope * factor if slope is not None else torch.zeros_like(leaf)
        return loss * factor

    try:
        bare_step(torch.optim.LBFGS)(descent, closure)
    except _Enough:
        with torch.no_grad():
            for leaf, kept in zip(leaves, lowest.leaves, strict=False):
                leaf.copy_(kept)
        return True
    except RuntimeError:  # numbers beyond what a tensor holds
        return False
    return True


@dataclass
class _Lowest:
    """Where the loss was lowest so far, and how many computations have gained next to nothing since."""

    leaves: list[Tensor]
    loss: float
    since: int = 0

    def settled(self, loss: float, leaves: list[Tensor], close: float) -> bool:
        self.since = 0 if self.loss - loss > close * abs(loss) else self.since + 1
        if loss < self.loss:
            self.leaves, self.loss = [leaf.detach().clone() for leaf in leaves], loss
        return self.since >= PATIENCE


def _made_quietly(optimizer: Any, leaves: list[Tensor]) -> None:
    """An optimizer of ours, which nobody hears of."""
    group = {
        "params": leaves,
        "lr": 1.0,
        "max_iter": 40,
        "max_eval": 60,
        "tolerance_grad": 1e-5,
        "tolerance_change": 1e-5,
        "history_size": 10,
        "line_search_fn": "strong_wolfe",
    }
    optimizer.defaults, optimizer.state, optimizer.param_groups = {}, defaultdict(dict), [group]
    optimizer._params = leaves
    optimizer._numel_cache = None
