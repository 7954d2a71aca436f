"""What a compiled graph computes of its nodes, for every kind of number, and how it is read."""

from __future__ import annotations

from math import inf, isnan, nan, sqrt

import numpy as np
import pytest
import torch
from torch._inductor import compile as inductor
from torch.fx.experimental.proxy_tensor import make_fx

from tensonde.adapters.torch.compiled.watched import from_bits
from tensonde.adapters.torch.compiled.watching import Depth, instrument, watchable

SPECIAL = [(), (inf,), (-inf,), (nan,), (-nan,), (inf, nan, -inf)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("depth", [Depth.LARGEST, Depth.RANGE])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_of_a_node(dtype: torch.dtype, depth: Depth) -> None:
    def same(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + 0.0,)

    like = torch.zeros(40, dtype=dtype)
    gm = make_fx(same, tracing_mode="fake")(like)
    (node,) = watchable(gm)
    (column,) = instrument(gm, [(node, depth)])
    assert column.first == 0
    compiled = inductor(gm, [like])
    for special in SPECIAL:
        given = like.clone()
        given[: 2 + len(special)] = torch.tensor([-3.0, 1.5, *special], dtype=dtype)
        packed = compiled(given)[-1]
        found = from_bits(packed.numpy(), ordered=True)
        uncompiled = from_bits(gm(given)[-1].numpy(), ordered=True)
        assert np.isnan(found[:2]).any() == np.isnan(uncompiled[:2]).any()  # NaN's sign is anybody's
        if depth is Depth.LARGEST:
            (largest,) = found
            assert isnan(largest) if any(map(isnan, special)) else largest == (inf if special else 3.0)
            continue
        low, high, square = found[0], found[1], from_bits(packed.numpy(), ordered=False)[2]
        if any(map(isnan, special)):
            assert np.isnan([low, high]).any()
        else:
            assert (low, high) == (min(-3.0, *special, 0.0), max(1.5, *special, 0.0))
            assert special or sqrt(square) == pytest.approx(sqrt(11.25))
