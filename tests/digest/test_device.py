"""The reductions for device tensors, run on the CPU against the reference. No GPU has run them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agreement import assert_same_digest

from tensonde.adapters.torch.digests import device
from tensonde.adapters.torch.digests.device import DeviceDigests
from tensonde.digest import DTYPES, ROW, Block, rows_of
from tensonde.digest.reference import digest_array

TENSORS = {
    "normal": torch.randn(1000),
    "offset": torch.randn(1000) * 1e-3 + 7,
    "broken": torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -0.0, 1e-42, -3.0]),
    "all nan": torch.full((5,), float("nan")),
    "empty": torch.empty(0),
    "scalar": torch.tensor(-2.0),
    "constant": torch.full((100,), 0.1),
    "zeros": torch.zeros(7),
    "huge": torch.randn(600, dtype=torch.float64) * 1e300,
    "tiny": torch.randn(600, dtype=torch.float64) * 1e-300,
    "huge float": torch.rand(600) * 1e37,
    "half": torch.randn(70).half(),
    "transposed": torch.randn(20, 30).t(),
    "integers": torch.arange(-5, 20),
    "unsigned": torch.arange(20, dtype=torch.uint8),
    "bool": torch.arange(20) % 3 == 0,
    "complex": torch.randn(50, dtype=torch.complex64).conj(),
}


def settled(*tensors):
    block, digests = Block(len(tensors)), DeviceDigests()
    for site, tensor in enumerate(tensors):
        assert digests.add(block, site, tensor) == site
    digests.settle(rows_of(block))
    assert len(digests) == 0
    return np.frombuffer(block, ROW)


@pytest.mark.parametrize("name", TENSORS)
def test_against_the_reference(name):
    tensor = TENSORS[name]
    assert_same_digest(settled(tensor)[0], digest_array(tensor.resolve_conj().numpy())[0])


def test_bfloat16():
    tensor = torch.randn(100).bfloat16()
    expected = digest_array(tensor.view(torch.int16).numpy().view(np.uint16), "bfloat16")
    assert_same_digest(settled(tensor)[0], expected[0])


def test_many_are_settled_together():
    found = settled(*TENSORS.values())
    assert found["site"].tolist() == list(range(len(TENSORS)))
    for row, tensor in zip(found, TENSORS.values(), strict=True):
        assert "torch." + DTYPES[row["dtype"]] == str(tensor.dtype)
        assert_same_digest(row, digest_array(tensor.resolve_conj().numpy())[0])


def test_nonfinite_rows_are_named():
    block, digests = Block(4), DeviceDigests()
    for tensor in (torch.ones(2), torch.tensor([float("inf")]), torch.tensor([float("nan")])):
        digests.add(block, 1, tensor)
    assert digests.settle(rows_of(block)) == [1, 2]


def test_without_float64(monkeypatch):
    """A device such as mps: float32 throughout, so only as close as that."""
    monkeypatch.setattr(device, "NO_FLOAT64", frozenset({"cpu"}))
    for name in ("normal", "broken", "huge float", "constant", "empty", "half"):
        row, expected = settled(TENSORS[name])[0], digest_array(TENSORS[name].numpy())[0]
        for field in ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "min", "max", "absmax"):
            np.testing.assert_equal(row[field], expected[field])
        for field in ("std", "absmean", "norm"):
            np.testing.assert_allclose(row[field], expected[field], rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_odd_tensors_are_skipped():
    block, digests = Block(4), DeviceDigests()
    odd = [None, torch.eye(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2).to(torch.float8_e5m2)]
    assert [digests.add(block, 1, tensor) for tensor in odd] == [-1] * 4
    assert (len(block), block.skipped) == (0, 4)
