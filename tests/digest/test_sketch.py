"""The kernel's sketches are those that the definition gives, for every dtype, order in memory and length."""

from __future__ import annotations

import numpy as np
import pytest

from tensonde.adapters.signs import PERIOD, packed_signs, signs
from tensonde.digest.kernel import kernel_name, sketch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(kernel_name() == "numpy", reason="there is no kernel")


def expected(values: np.ndarray) -> np.ndarray:
    flat = np.nan_to_num(values.reshape(-1).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    vectors = signs()
    pieces = np.arange(len(flat)) // PERIOD
    return (flat[:, None] * vectors[np.arange(len(flat)) % PERIOD] * vectors[(pieces * 7 + 3) % PERIOD]).sum(0)


def check(tensor: torch.Tensor) -> None:
    found = sketch(tensor, packed_signs())
    assert found is not None
    wanted = expected(tensor.double().numpy())
    scale = max(1.0, float(np.abs(np.nan_to_num(tensor.double().numpy(), posinf=0, neginf=0)).sum()))
    assert np.allclose(found, wanted, rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize("count", [0, 1, 3, 4095, 4097, PERIOD - 1, PERIOD, PERIOD + 1, 3 * PERIOD + 5])
def test_lengths(count: int) -> None:
    check(torch.randn(count, generator=torch.Generator().manual_seed(count)))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool],
)
def test_dtypes(dtype: torch.dtype) -> None:
    check((torch.randn(50, 100) * 3).to(dtype))


def test_order_is_that_of_the_indices() -> None:
    whole = torch.randn(40, 30, 20)
    for view in (
        whole.permute(2, 0, 1),
        whole[::2, 3:, ::3],
        whole[:, :1].expand(40, 9, 20),
        whole.flip(0),
        whole[0, 0, 0],
    ):
        check(view)
        assert sketch(view, packed_signs()) == sketch(view.contiguous(), packed_signs())


def test_values_that_are_not_finite_count_as_zero() -> None:
    tensor = torch.randn(999)
    tensor[[3, 500, 998]] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    check(tensor)


def test_what_cannot_be_read() -> None:
    for odd in (None, "text", torch.zeros(3, dtype=torch.complex64), torch.zeros(3, device="meta")):
        assert sketch(odd, packed_signs()) is None
    with pytest.raises(ValueError, match="no signs"):
        sketch(torch.zeros(3), b"")
