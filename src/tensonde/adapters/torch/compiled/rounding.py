"""How far apart two results are, and how much of that rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tensonde.adapters.torch.compiled import interpret

MANY = 30
"""A distance this many times larger than the effect of a changed last bit of the inputs is no rounding."""


class Gap(NamedTuple):
    """How far apart two tensors are: relative to the norm, at most, and as a norm; infinite where NaN or Inf stand in other places."""

    distance: float = 0.0
    largest: float = 0.0
    norm: float = 0.0


_FAR = Gap(float("inf"), float("inf"), float("inf"))


def apart(right: Tensor, got: Tensor) -> Gap:
    if right.shape != got.shape or right.dtype != got.dtype:
        return _FAR
    if right.numel() == 0 or not right.is_floating_point():
        return Gap()
    a, b = right.detach().double(), got.detach().double()
    fine = torch.isfinite(a)
    if bool((fine != torch.isfinite(b)).any()):
        return _FAR
    a, b = a[fine], b[fine]
    difference = (a - b).abs()
    if not difference.numel():
        return Gap()
    scale = max(float(a.norm()), float(b.norm()), 1e-6 * a.numel() ** 0.5)
    norm = float(difference.norm())
    return Gap(norm / scale, float(difference.max()), norm)


class Rounding:
    """How far rounding moves each node of a graph: the graph is run again with the last bit of its inputs changed at random.

    What is zero but for rounding, such as the gradient of a bias before a batch norm, is all distance and yet not wrong.
    """

    def __init__(self, plain: GraphModule, args: Sequence[Any]) -> None:
        self.values: dict[str, Any] = {}
        self._noise: dict[str, float] = {}
        generator = torch.Generator().manual_seed(0)

        def compare(node: Node, value: Any) -> None:
            if isinstance(value, Tensor):
                self._noise[node.name] = apart(self.values[node.name], value).norm

        state = torch.default_generator.get_state()
        with torch.random.fork_rng(devices=[]):
            interpret.run(plain, args, lambda node, value: self.values.__setitem__(node.name, _own(value)))
            torch.default_generator.set_state(state)
            interpret.run(plain, [_moved(arg, generator) for arg in args], compare)

    def explains(self, node: Node, gap: Gap) -> bool:
        return not gap.norm > MANY * self._noise.get(node.name, 0.0)


def _moved(arg: Any, generator: torch.Generator) -> Any:
    if not isinstance(arg, Tensor) or not arg.is_floating_point():
        return arg
    step = torch.finfo(arg.dtype).eps
    noise = (torch.rand(arg.shape, generator=generator) * 2 - 1).to(arg.device)
    return (arg.detach().double() * (1 + 2 * step * noise)).to(arg.dtype)


def _own(value: Any) -> Any:
    """As it is now: a later node may write to it."""
    return value.detach().clone() if isinstance(value, Tensor) else value
