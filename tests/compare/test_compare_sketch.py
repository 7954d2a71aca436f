"""Sketches: what they tell of a distance, what they do not depend on, and that they leave no trace in the training."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tensonde.adapters.torch.tracing.measure import Measure
from tensonde.adapters.torch.tracing.sketch import Sketch
from tensonde.compare.distance import distance


@pytest.mark.parametrize("count", [1, 7, 1000, 40_000, 1_200_000])
def test_the_distance_of_sketches_is_about_that_of_the_tensors(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    a = torch.randn(count, generator=generator)
    b = a + 1e-3 * torch.randn(count, generator=generator)
    measure = Measure(sketch=True)
    found = distance(measure(a), measure(b))
    true = float((a.double() - b.double()).norm() / a.double().norm())
    assert true / 3 < found.relative < 3 * true


def test_only_the_order_of_elements_counts_not_the_shape() -> None:
    a = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    measure = Measure(sketch=True)
    assert distance(measure(a), measure(a.reshape(6, 4))).relative == 0
    assert distance(measure(a), measure(a.transpose(0, 1).contiguous().transpose(0, 1))).relative == 0
    assert distance(measure(a), measure(a.transpose(0, 1))).relative > 0.05  # digests alone would see nothing
    assert distance(measure(a), measure(a.to(torch.bfloat16))).relative == 0  # exact in either


def test_no_random_number_of_the_training_is_used() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    state = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    Sketch()(torch.randn(10, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(state, np.random.get_state()[1])  # type: ignore[arg-type]


def test_odd_values_do_not_spoil_a_sketch() -> None:
    found = Sketch()(torch.tensor([1.0, math.nan, -math.inf, 2.0]))
    assert all(math.isfinite(value) for value in found.values())
    assert Sketch()(torch.tensor([True, False])).keys() == found.keys()
    assert Sketch()(torch.zeros(0)) == dict.fromkeys(found, 0.0)
