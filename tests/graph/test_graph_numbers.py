"""What a compiled graph computes of its nodes, for every kind of number and shape, and how it is read."""

from __future__ import annotations

from math import inf, isnan, nan, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import compile as inductor
from torch.fx.experimental.proxy_tensor import make_fx

from tensonde.adapters.torch.compiled.watched import numbers
from tensonde.adapters.torch.compiled.watching import Depth, Packing, instrument, watchable

SPECIAL = [(), (inf,), (-inf,), (nan,), (-nan,), (inf, nan, -inf)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(40,), (8, 64), (3, 5, 100), (40, 1), (1, 1), (2, 3, 8, 8)]


def packed(given: torch.Tensor, depth: Depth) -> tuple[torch.fx.GraphModule, Packing]:
    def same(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + 0.0,)

    gm = make_fx(same, tracing_mode="fake")(given)
    (node,) = watchable(gm)
    packing = instrument(gm, [(node, depth)])
    assert packing.columns[0].first == 0
    return gm, packing


def read(outputs: Any, packing: Packing) -> tuple[Any, Any, Any]:
    lowest, highest, total = numbers(outputs[1:], np.array(packing.starts))
    return lowest[0], highest[min(1, len(highest) - 1)], total[-1]


@pytest.mark.parametrize("depth", [Depth.LARGEST, Depth.RANGE])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_of_a_node(dtype: torch.dtype, depth: Depth) -> None:
    like = torch.zeros(40, dtype=dtype)
    gm, packing = packed(like, depth)
    compiled = inductor(gm, [like])
    for special in SPECIAL:
        given = like.clone()
        given[: 2 + len(special)] = torch.tensor([-3.0, 1.5, *special], dtype=dtype)
        for run in (compiled, gm):
            low, high, square = read(run(given), packing)
            if any(map(isnan, special)):
                assert isnan(high)
                assert isnan(low)
            elif depth is Depth.LARGEST:
                assert high == (inf if special else 3.0)
            else:
                assert (low, high) == (min(-3.0, *special, 0.0), max(1.5, *special, 0.0))
                assert special or sqrt(square) == pytest.approx(sqrt(11.25))


@pytest.mark.parametrize("depth", [Depth.LARGEST, Depth.RANGE])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_brought_together(shape: tuple[int, ...], depth: Depth) -> None:
    given = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    gm, packing = packed(given, depth)
    low, high, square = read(inductor(gm, [given])(given), packing)
    if depth is Depth.LARGEST:
        assert high == given.abs().max()
    else:
        assert (low, high) == (given.min(), given.max())
        assert square == pytest.approx(float((given.double() ** 2).sum()), rel=1e-5)


def test_numbers_of_several_nodes_stay_apart() -> None:
    def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1, y * y, y.double() - 2, (x + 3).sum()

    given = [torch.arange(128.0).reshape(2, 64), torch.arange(-5.0, 5.0)]
    gm = make_fx(several, tracing_mode="fake")(*given)
    nodes = [node for node in watchable(gm) if node.name in ("add", "mul", "sub", "sum_1")]
    packing = instrument(gm, [(node, Depth.RANGE) for node in nodes])
    outputs = inductor(gm, given)(*given)
    lowest, highest, _ = numbers(outputs[4:], np.array(packing.starts))
    found = {c.node: (lowest[c.first], highest[c.first + 1]) for c in packing.columns}
    total = float((given[0] + 3).sum())
    assert found == {"add": (1, 128), "mul": (0, 25), "sub": (-7, 2), "sum_1": (total, total)}
