"""Digests of tensors on a device, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agreement import assert_same_digest

import standin
from tensonde.adapters.torch.digests.device import digests as device_digests
from tensonde.adapters.torch.digests.device.digests import DeviceDigests
from tensonde.digest import DTYPES, Block
from tensonde.digest.reference import digest_array

ON = "standin"
torch.manual_seed(0)

TENSORS = {
    "normal": torch.randn(1000),
    "rows": torch.randn(1024 * 3),
    "odd": torch.randn(2049),
    "large": torch.randn((1 << 20) + 1234),
    "larger than a piece": torch.randn(3 * (1 << 20) + 5),
    "offset": torch.randn(1000) * 1e-3 + 7,
    "far offset": torch.randn(5000) * 1e-2 + 1000,
    "broken": torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -0.0, 1e-42, -3.0]),
    "broken rows": torch.where(torch.rand(5000) < 0.3, float("nan"), torch.randn(5000)),
    "all nan": torch.full((5,), float("nan")),
    "all inf": torch.full((1500,), float("-inf")),
    "empty": torch.empty(0),
    "scalar": torch.tensor(-2.0),
    "constant": torch.full((100,), 0.1),
    "zeros": torch.zeros(7),
    "huge": torch.randn(600, dtype=torch.float64) * 1e300,
    "tiny": torch.randn(600, dtype=torch.float64) * 1e-300,
    "huge float": torch.rand(600) * 1e37,
    "tiny float": torch.rand(6000) * 1e-37,
    "half": torch.randn(70).half(),
    "transposed": torch.randn(20, 30).t(),
    "strided": torch.randn(40, 50)[::3, 1::2],
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": torch.randn(5, 1).expand(5, 7),
    "integers": torch.arange(-5, 20),
    "unsigned": torch.arange(20, dtype=torch.uint8),
    "bool": torch.arange(20) % 3 == 0,
    "float8": torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn),
    "wide float8": torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2),
    "float8 without negative zero": torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fnuz),
    "powers of two": torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu),
    "complex": torch.randn(50, dtype=torch.complex64).conj(),
}


def reference(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype in device_digests.FLOAT8:
        return digest_array(tensor.view(torch.uint8).numpy(), str(tensor.dtype).removeprefix("torch."))[0]
    return digest_array(numpy_of(tensor))[0]


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.resolve_conj().numpy()


def test_tensors_have_the_digests_of_the_reference() -> None:
    block, digests = Block(4), DeviceDigests()
    given = [tensor.to(ON) if tensor.is_contiguous() else on_device(tensor) for tensor in TENSORS.values()]
    block.step = 3
    for site, tensor in enumerate(given):
        assert digests.add(block, site, tensor)
    digests.send()
    rows = digests.arrived(wait=True)
    assert rows is not None
    assert rows["site"].tolist() == sorted(range(len(given)), key=lambda k: (given[k].dtype is torch.float64, k))
    assert set(rows["step"]) == {3}
    for row in rows:
        name = list(TENSORS)[row["site"]]
        try:
            close(row, reference(TENSORS[name]))
        except AssertionError as problem:
            raise AssertionError(name) from problem


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """With the same strides."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=ON)
    return made.copy_(tensor) if 0 not in tensor.stride() else tensor[:, :1].clone().to(ON).expand(tensor.shape)


def close(row: np.ndarray, expected: np.ndarray) -> None:
    """As `assert_same_digest`, but sums are those of float32."""
    for field in ("count", "nan", "pos_inf", "neg_inf", "zero", "negative"):
        np.testing.assert_equal(row[field], expected[field], err_msg=field)
    for field in ("min", "max", "absmax"):  # magnitudes of complex numbers are rounded
        rtol = 1e-6 if "complex" in DTYPES[row["dtype"]] else 0
        np.testing.assert_allclose(row[field], expected[field], rtol=rtol, atol=0, err_msg=field)
    np.testing.assert_array_equal(row["exponents"], expected["exponents"])
    for field in ("std", "absmean", "norm"):
        np.testing.assert_allclose(row[field], expected[field], rtol=3e-6, err_msg=field)
    np.testing.assert_allclose(row["mean"], expected["mean"], rtol=0, atol=3e-6 * np.nan_to_num(expected["absmean"]))


def test_float64_is_not_rounded() -> None:
    tensor = torch.randn(3000, dtype=torch.float64) * 1e200
    row = DeviceDigests().at_once(tensor.to(ON))
    assert row is not None
    assert_same_digest(row[0], digest_array(tensor.numpy())[0])


def test_bfloat16() -> None:
    tensor = torch.randn(100).bfloat16()
    expected = digest_array(tensor.view(torch.int16).numpy().view(np.uint16), "bfloat16")
    row = DeviceDigests().at_once(tensor.to(ON))
    assert row is not None
    close(row[0], expected[0])


def test_many_tensors_are_one_launch_and_one_copy() -> None:
    block, digests = Block(4), DeviceDigests()
    tensors = [torch.randn(k + 1, device=ON) for k in range(200)]
    for _ in range(3):
        with standin.counting() as seen:
            assert digests.add_many(block, list(range(200)), tensors) == 200
            digests.send()
        assert digests.arrived(wait=True) is not None
    assert seen["copies_to_host"] == 1
    assert seen["synchronisations"] == seen["host_reads"] == seen["copies_to_device"] == 0
    assert seen["launches"] <= 40
    with standin.counting() as once:
        digests.add_many(block, [0], tensors[:1])
        digests.send()
    assert once["launches"] <= seen["launches"] + 1


def test_a_module_output_is_one_more_launch() -> None:
    block, digests = Block(4), DeviceDigests()
    x = torch.randn(30, 40, device=ON)
    took = []
    for many in (1, 1, 11, 11):
        with standin.counting() as seen:
            for site in range(many):
                digests.add(block, site, x)
            digests.send()
        took.append(seen["launches"])
    assert took[3] - took[1] == 10


def test_nothing_is_waited_for() -> None:
    block, digests = Block(4), DeviceDigests()
    x = torch.randn(30, 40, device=ON)
    with standin.held():
        digests.add(block, 5, x)
        digests.send()
        x.fill_(7.0)
        with standin.counting() as seen:
            assert digests.arrived() is None
        assert seen["synchronisations"] == 0
        torch.accelerator.synchronize()
        rows = digests.arrived()
    assert rows is not None
    assert rows["max"][0] != 7.0
    assert rows["site"].tolist() == [5]


def test_who_is_far_ahead_waits() -> None:
    block, digests = Block(4), DeviceDigests()
    x = torch.randn(8, device=ON)
    with standin.held():
        for step in range(device_digests.MOST_AHEAD + 1):
            block.step = step
            digests.add(block, 0, x)
            digests.send()
        rows = digests.arrived()
    assert rows is not None
    assert rows["step"][0] == 0


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_digest_is_skipped() -> None:
    block, digests = Block(4), DeviceDigests()
    assert not digests.add(block, 1, torch.ones(2).to(torch.complex32).to(ON))
    assert block.skipped == 1
