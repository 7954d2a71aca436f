"""Measuring tensors for a trace: what is skipped gives the same as measuring anew."""

from __future__ import annotations

import pytest
import torch

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tracing.measure import Measure
from tensonde.adapters.torch.tracing.weights import Weights


@pytest.fixture
def measure() -> Measure:
    return Measure(sketch=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_is_finite_sees_every_bad_value(measure: Measure, bad: float, dtype: torch.dtype) -> None:
    tensor = torch.ones(3, 50, dtype=dtype)
    with unseen():
        assert measure.is_finite(tensor)
        tensor[2, 49] = bad
        assert not measure.is_finite(tensor)


def test_again_keeps_what_did_not_change(measure: Measure) -> None:
    gradient = torch.randn(40, 7)
    with unseen():
        first = measure(gradient)
        assert measure.again(gradient, first) is first


def test_again_sees_what_was_written_past_autograd(measure: Measure) -> None:
    gradient = torch.randn(40, 7)
    with unseen():
        first = measure(gradient)
        gradient.data.clamp_(-0.1, 0.1)  # leaves the version as it was
        assert measure.again(gradient, first) == measure(gradient) != first


def test_a_parameter_is_measured_once_per_version(measure: Measure) -> None:
    weights = Weights(measure, thorough=False, faint=0.0)
    parameter = torch.nn.Parameter(torch.randn(5, 5))
    weights.look("before", [("fc.weight", parameter)])
    known = weights.known(parameter, parameter._version)
    with unseen():
        assert known == measure(parameter)
    with torch.no_grad():
        parameter.add_(1.0)
    assert weights.known(parameter, parameter._version) is None
    assert weights.known(torch.nn.Parameter(torch.randn(5, 5)), 0) is None
