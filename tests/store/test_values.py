"""Captured tensors come back as they were, whatever their dtype, and stay within their budget."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

from tensonde.errors import RecordingError
from tensonde.model.moment import Moment, Phase
from tensonde.store.reader import Rank
from tensonde.store.values import encode_value, load_value, read_header
from tensonde.store.writer import RecordingWriter

NOW = Moment(7, Phase.BACKWARD, 2)
NUMPY = [
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
    "bool", "complex64", "complex128",
]  # fmt: skip


def keep(path: Path, content: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    path.write_bytes(b"".join(encode_value("a.b:grad[1]", NOW, content, dtype, shape)))
    value = read_header(path)[0]
    assert (value.site, value.moment, value.dtype, value.shape) == ("a.b:grad[1]", NOW, dtype, shape)
    return load_value(value)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4), (2, 0, 4)])
def test_every_numpy_dtype(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.random.default_rng(0).random(shape) * 100).astype(dtype)
    read = keep(tmp_path / "v.safetensors", array.tobytes(), dtype, shape)
    assert (read.dtype, read.shape) == (array.dtype, shape)
    assert read.tobytes() == array.tobytes()


@given(st.lists(st.floats(width=32), max_size=20))
@settings(deadline=None)
def test_bfloat16(tmp_path_factory: pytest.TempPathFactory, numbers: list[float]) -> None:
    exact = (np.array(numbers, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    content = (exact.view(np.uint32) >> 16).astype("<u2").tobytes()
    read = keep(tmp_path_factory.mktemp("v") / "v.safetensors", content, "bfloat16", (len(numbers),))
    assert read.dtype == np.float32
    assert read.tobytes() == exact.tobytes()


def test_float8_by_its_definition(tmp_path: Path) -> None:
    def number(byte: int, exponent_bits: int, bias: int, infinite: bool) -> float:
        fraction_bits = 7 - exponent_bits
        sign = -1.0 if byte & 128 else 1.0
        exponent = (byte & 127) >> fraction_bits
        fraction = (byte & (2**fraction_bits - 1)) / 2**fraction_bits
        if infinite and exponent == 2**exponent_bits - 1:
            return sign * float("inf") if fraction == 0 else float("nan")
        if not infinite and byte & 127 == 127:
            return float("nan")
        return sign * (2.0 ** (1 - bias) * fraction if exponent == 0 else 2.0 ** (exponent - bias) * (1 + fraction))

    every = bytes(range(256))
    e4m3 = keep(tmp_path / "a.safetensors", every, "float8_e4m3fn", (16, 16))
    np.testing.assert_array_equal(e4m3.ravel(), [number(byte, 4, 7, False) for byte in every])
    e5m2 = keep(tmp_path / "b.safetensors", every, "float8_e5m2", (256,))
    np.testing.assert_array_equal(e5m2, [number(byte, 5, 15, True) for byte in every])
    e8m0 = keep(tmp_path / "c.safetensors", every, "float8_e8m0fnu", (256,))
    np.testing.assert_array_equal(e8m0, [*(2.0 ** (byte - 127) for byte in range(255)), np.nan])
    assert np.nanmax(e4m3) == 448


def test_an_unknown_dtype_is_kept_as_bytes(tmp_path: Path) -> None:
    read = keep(tmp_path / "v.safetensors", b"\x01\x02\x03", "quint3", (8,))
    assert read.tolist() == [1, 2, 3]


def test_the_safetensors_library_reads_our_files(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "v.safetensors"
    keep(path, array.tobytes(), "float32", (2, 3))
    np.testing.assert_array_equal(load_file(path)["a.b:grad[1]"], array)
    with safe_open(path, "numpy") as file:
        assert file.metadata()["step"] == "7"
        assert file.metadata()["phase"] == "backward"
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "bool", "uint16"):
        size = {"bfloat16": 2, "uint16": 2, "complex64": 8}.get(dtype, 1)
        keep(path, bytes(5 * size), dtype, (5,))
        with safe_open(path, "numpy") as file:
            assert list(file.keys()) == ["a.b:grad[1]"]


def test_the_budget(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {}, value_budget=3000)
    kept = [writer.value("w:grad", Moment(step, Phase.BACKWARD), bytes(400), "float32", (100,)) for step in range(9)]
    assert [path is not None for path in kept] == [True] * 4 + [False] * 5
    assert sum(path.stat().st_size for path in kept if path) <= 3000
    writer.close()
    rank = Rank(tmp_path)
    assert [value.moment.step for value in rank.values] == [0, 1, 2, 3]
    (event,) = rank.events
    assert (event["kind"], event["site"], event["step"]) == ("values-declined", "w:grad", 4)
    assert (rank.session["values"], rank.session["values_declined"]) == (4, 5)


def test_bytes_that_do_not_fit_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    with pytest.raises(ValueError, match=r"a:out: 3 bytes are not float32\[2\]"):
        writer.value("a:out", NOW, b"123", "float32", (2,))
    assert Rank(tmp_path).values == []
    array = np.ones((2, 3), np.float32)
    assert writer.value("a:out", NOW, memoryview(array), "float32", (2, 3)) is not None
    np.testing.assert_array_equal(load_value(Rank(tmp_path).values[0]), array)


def test_a_damaged_file_is_left_out_and_told(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, {})
    for _ in range(3):
        writer.value("a:out", NOW, b"1234", "float32", (1,))
    (tmp_path / "values" / "000000.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    (tmp_path / "values" / "000001.safetensors").write_bytes(b"")
    rank = Rank(tmp_path)
    assert len(rank.values) == 1
    assert len(rank.problems) == 2
    (value,) = rank.values
    value.path.write_bytes(b"gone")
    with pytest.raises(RecordingError, match=r"000002\.safetensors cannot be read as a captured tensor"):
        rank.load(value)
