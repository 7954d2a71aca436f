"""Every statistic of the kernel against the numpy reference, over dtypes, shapes and strides."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from agreement import assert_same_digest, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensonde.digest import DTYPES
from tensonde.digest._kernel import Block
from tensonde.digest.reference import digest_array, digest_difference, float8_numbers

FLOAT8 = [name for name in DTYPES if name.startswith("float8")]
NUMPY_DTYPES = [name for name in DTYPES if name not in ("bfloat16", *FLOAT8)]


def digest(tensor):
    block = Block(1)
    assert block.add(3, tensor) == 0
    return rows(block)[0].copy()


def agrees(array):
    assert_same_digest(digest(array), digest_array(array)[0])


def random_array(dtype, shape, seed, kind="normal"):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.3
    if "int" in dtype:
        bounds = np.iinfo(dtype)
        return rng.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape)
    if kind == "offset":
        values = values * 1e-3 + 7
    if kind == "sparse":
        values = np.where(rng.random(shape) < 0.7, 0.0, values)
    if kind == "wide":
        values = values * np.exp(rng.uniform(-10, 10, shape))
    if kind == "broken":
        values = np.where(rng.random(shape) < 0.05, rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-40], shape), values)
    with np.errstate(all="ignore"):
        if "complex" in dtype:
            values = values + 1j * rng.permutation(values.reshape(-1)).reshape(shape)
        return values.astype(dtype)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_values(dtype, data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7))
    agrees(data.draw(hnp.arrays(dtype, shape)))


@pytest.mark.parametrize("kind", ["normal", "offset", "sparse", "wide", "broken"])
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_sizes_around_rows_chunks_and_segments(dtype, kind):
    for seed, size in enumerate([1, 2, 15, 16, 17, 63, 64, 65, 127, 255, 300, 511, 512, 513, 1025, 4095, 4097, 50_000]):
        agrees(random_array(dtype, size, seed, kind))


@pytest.mark.parametrize("size", [131_072, 131_073, 300_000, 1_100_000])
def test_large(size):
    agrees(random_array("float32", size, size, "broken"))
    agrees(random_array("float32", size, size, "offset"))


@settings(max_examples=150, deadline=None)
@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=4, max_side=40),
    dtype=st.sampled_from(["float32", "float16", "float64", "int32", "bool", "complex64"]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_strides(shape, dtype, seed, data):
    array = random_array(dtype, shape, seed)
    axes = data.draw(st.permutations(range(len(shape))))
    steps = data.draw(st.lists(st.sampled_from([1, 2, -1, -3]), min_size=len(shape), max_size=len(shape)))
    view = array.transpose(axes)[tuple(slice(None, None, step) for step in steps)]
    if data.draw(st.booleans()):
        view = np.broadcast_to(view[..., None], (*view.shape, 3))
    agrees(view)


@settings(max_examples=60, deadline=None)
@given(bits=hnp.arrays(np.uint16, st.integers(0, 400)))
def test_bfloat16(bits):
    tensor = torch.from_numpy(bits.copy()).view(torch.bfloat16)
    assert_same_digest(digest(tensor), digest_array(bits, "bfloat16")[0])


@pytest.mark.parametrize("name", FLOAT8)
def test_every_float8(name):
    """All 256 patterns of bits, against another library's idea of them, and in parts and columns."""
    bits = np.arange(256, dtype=np.uint8)
    known = bits.view(getattr(ml_dtypes, name)).astype(np.float64)
    np.testing.assert_array_equal(float8_numbers(name), known)
    tensor = torch.from_numpy(bits).view(getattr(torch, name))
    assert_same_digest(digest(tensor), digest_array(bits, name)[0])
    for value in range(256):
        assert_same_digest(digest(tensor[value : value + 1]), digest_array(bits[value : value + 1], name)[0])
    columns = torch.from_numpy(bits.reshape(16, 16)).view(getattr(torch, name)).t()[::3]
    assert_same_digest(digest(columns), digest_array(np.ascontiguousarray(bits.reshape(16, 16).T[::3]), name)[0])


def test_every_half():
    """All 65536 bit patterns of both half precisions."""
    bits = np.arange(65536, dtype=np.uint16)
    assert_same_digest(digest(bits.view(np.float16)), digest_array(bits.view(np.float16))[0])
    tensor = torch.from_numpy(bits).view(torch.bfloat16)
    assert_same_digest(digest(tensor), digest_array(bits, "bfloat16")[0])
    for start in range(0, 65536, 64):
        assert_same_digest(digest(tensor[start : start + 64]), digest_array(bits[start : start + 64], "bfloat16")[0])


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -3.0, 1e-45, 3e38, 1e-30])
@pytest.mark.parametrize("size", [1, 5, 100, 10_000])
def test_a_constant_has_no_spread(value, size):
    row = digest(np.full(size, value, np.float32))
    expected = float(np.float32(value))
    assert row["std"] == 0
    assert row["mean"] == row["min"] == row["max"] == expected
    assert row["absmean"] == row["absmax"] == abs(expected)
    assert row["norm"] == pytest.approx(abs(expected) * size**0.5)
    assert row["negative"] == (size if expected < 0 else 0)
    assert row["zero"] == (size if expected == 0 else 0)


def test_negative_zero_is_zero_and_not_negative():
    array = np.array([-0.0, 0.0, -1.0] * 100, np.float32)
    row = digest(array)
    assert (row["zero"], row["negative"]) == (200, 100)
    only = digest(np.full(70, -0.0, np.float32))
    for field in ("min", "max", "mean", "absmax"):
        assert not np.signbit(only[field]), field


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1.7e308, 5e-324, 1e160, 1e-160, 1.0])
@pytest.mark.parametrize("size", [3, 1000, 300_000])
def test_squares_of_float64_neither_overflow_nor_vanish(scale, size):
    values = np.random.default_rng(size).uniform(-1, 1, size) * scale
    values[0] = np.nan
    row, expected = digest(values), digest_array(values)[0]
    assert_same_digest(row, expected)
    assert row["std"] > 0 or scale == 5e-324


@pytest.mark.parametrize("scale", [3e38, 1e19, 1e-19, 1e-25, 1e-40])
def test_extreme_float32(scale):
    agrees((np.random.default_rng(0).uniform(-1, 1, 5000) * scale).astype(np.float32))


def test_the_worst_chunk_for_the_guess():
    """The rows that the guess looks at are unlike all others."""
    array = np.full(8192, 100.0, np.float32) + np.random.default_rng(1).uniform(-1e-3, 1e-3, 8192).astype(np.float32)
    array.reshape(-1, 16)[::8] = 0.001
    agrees(array)
    array.reshape(-1, 16)[::8] = -1e4
    agrees(array)


def test_neighbouring_floats():
    """Values one bit apart: the spread is far below the rounding of a sum."""
    array = np.where(np.arange(5000) % 3 == 0, np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1)))
    agrees(array.astype(np.float32))


def test_the_largest_double_beside_zeros():
    values = np.zeros(6)
    values[0] = np.finfo(np.float64).max
    agrees(values)
    agrees(np.array([values[0], np.nextafter(values[0], 0)]))


@settings(max_examples=100, deadline=None)
@given(values=hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(-1e10, 1e10, width=32)))
def test_rounding_keeps_the_order_of_statistics(values):
    row = digest(values)
    assert row["min"] <= row["mean"] <= row["max"]
    assert row["absmean"] <= row["absmax"] <= row["norm"]
    assert row["std"] <= row["absmax"]


def test_nothing_finite():
    for values in ([np.nan] * 70, [np.inf, -np.inf, np.nan], []):
        row = digest(np.array(values, np.float32))
        assert row["norm"] == 0
        assert all(np.isnan(row[field]) for field in ("min", "max", "mean", "std", "absmax", "absmean"))


@settings(max_examples=100, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "float16", "float64", "int32", "uint8", "bool"]),
    shape=hnp.array_shapes(max_dims=3, max_side=30),
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["normal", "broken", "offset"]),
    turn=st.booleans(),
)
def test_difference(dtype, shape, seed, kind, turn):
    new, old = random_array(dtype, shape, seed, kind), random_array(dtype, shape, seed + 1)
    if turn:  # the two lie differently in memory
        old = np.asfortranarray(old)
        new = new[::-1]
    block = Block(1)
    assert block.add_difference(1, new, old) == 0
    assert_same_digest(rows(block)[0], digest_difference(new, old)[0])


def test_difference_of_bfloat16_is_not_rounded():
    new = torch.tensor([1.0, 300.0], dtype=torch.bfloat16)
    old = torch.tensor([1e-3, 1.0], dtype=torch.bfloat16)
    block = Block(1)
    block.add_difference(1, new, old)
    assert rows(block)[0]["max"] == 299.0
    assert rows(block)[0]["min"] == (new.float() - old.float()).min().item()


@pytest.mark.parametrize("kind", ["normal", "broken", "offset"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
def test_threads_do_not_change_a_bit(dtype, kind):
    size = 1_300_007
    array = random_array("float32" if dtype == "bfloat16" else dtype, size, 5, kind)
    tensor = torch.from_numpy(array).to(getattr(torch, dtype))
    found = []
    for threads in (1, 2, 3, 8):
        block = Block(1)
        block.threads = threads
        block.add(0, tensor)
        found.append(bytes(block))
    assert len(set(found)) == 1
