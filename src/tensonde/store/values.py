"""A captured tensor as a safetensors file of one tensor, whose metadata says where and when it was seen.

The format is written and read here directly: eight bytes of length, a JSON header, the raw bytes. That saves
a copy of the tensor on the way out, and the library's own function for it has changed its arguments between
releases.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.model.moment import Moment
from tensonde.store.codec import moment_in
from tensonde.store.damage import open_file, reading
from tensonde.store.documents import read_text
from tensonde.store.files import dump_json

HEADER_LIMIT = 1 << 20

CODES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1), "float8_e8m0fnu": ("F8_E8M0", 1),
    "int64": ("I64", 8), "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1),
    "uint64": ("U64", 8), "uint32": ("U32", 4), "uint16": ("U16", 2), "uint8": ("U8", 1), "bool": ("BOOL", 1),
    "complex64": ("F32", 8), "complex128": ("F64", 16),
}  # fmt: skip
"""dtype name → safetensors code and bytes an element. A complex tensor is stored as pairs in a last
dimension of 2."""


@dataclass(frozen=True, slots=True)
class Value:
    """One captured tensor; `dtype` and `shape` are the tensor's own, whatever it is stored or loaded as."""

    site: str
    moment: Moment
    dtype: str
    shape: tuple[int, ...]
    path: Path
    nbytes: int


def encode_value(
    site: str, moment: Moment, content: bytes | memoryview, dtype: str, shape: tuple[int, ...]
) -> tuple[bytes, memoryview]:
    """The two parts of the file: its header and its bytes, which are the caller's, not copied.

    Raises ValueError when `content` is not `shape` of `dtype`. A dtype that safetensors does not know is kept
    as its raw bytes.
    """
    view = memoryview(content).cast("B")
    code, size = CODES.get(dtype, ("U8", 0))
    if size and math.prod(shape) * size != len(view):
        raise ValueError(f"{site}: {len(view)} bytes are not {dtype}{list(shape)}")
    stored = [len(view)] if not size else [*shape, 2] if dtype.startswith("complex") else list(shape)
    facts = {
        "format": "tensonde-1", "site": site, "step": str(moment.step), "phase": str(moment.phase),
        "call": str(moment.call), "dtype": dtype, "shape": json.dumps(list(shape)),
    }  # fmt: skip
    entry = {"dtype": code, "shape": stored, "data_offsets": [0, len(view)]}
    header = dump_json({"__metadata__": facts, site: entry})
    header += b" " * (-len(header) % 8)  # so that the tensor is aligned, and as the format asks
    return struct.pack("<Q", len(header)) + header, view


def read_header(path: Path) -> tuple[Value, str, list[int], int]:
    """The value, its code, its stored shape, and the offset of its bytes. Whatever damage makes it raise is for `reading`."""
    with open_file(path) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > HEADER_LIMIT:
            raise ValueError(f"a header of {length} bytes")
        header = read_text(file.read(length))
        available = file.seek(0, 2) - 8 - length
    facts = header.pop("__metadata__")
    ((site, entry),) = header.items()
    begin, end = entry["data_offsets"]
    if begin != 0 or end != available:
        raise ValueError(f"{available} bytes where the header says {end}")
    shape = tuple(int(n) for n in read_text(facts["shape"]))
    size = CODES.get(str(facts["dtype"]), ("", 0))[1]
    if min(shape, default=0) < 0 or (size and math.prod(shape) * size != end):
        raise ValueError(f"{end} bytes are not {facts['dtype']}{list(shape)}")
    value = Value(site, moment_in(facts), str(facts["dtype"]), shape, path, end)
    return value, str(entry["dtype"]), [int(n) for n in entry["shape"]], 8 + length


def load_value(value: Value) -> np.ndarray[Any, Any]:
    """The tensor in numpy, owned by the caller. bfloat16 and float8 come as float32 of the same values; a
    dtype that neither numpy nor this module knows comes as its raw bytes."""
    with reading(value.path, "a captured tensor"):
        found, code, stored, offset = read_header(value.path)
        raw = np.fromfile(value.path, np.uint8, offset=offset)
        return _decode(raw, code, stored, found)


def map_value(value: Value) -> np.ndarray[Any, Any]:
    """The tensor as it lies in the file, read where it is looked at, in its stored shape: bfloat16 as uint16, float8 as uint8,
    a complex tensor as itself. `widen` makes numbers of any part of it. Raises RecordingError."""
    with reading(value.path, "a captured tensor"):
        found, code, _, offset = read_header(value.path)
        if not found.nbytes:
            return np.zeros(found.shape, np.float32)
        raw = np.memmap(value.path, np.uint8, "r", offset)
        if found.dtype not in CODES:
            return raw
        kind = {"BF16": "<u2"}.get(code, "u1" if code.startswith("F8") else found.dtype)
        return raw.view(np.dtype(kind)).reshape(found.shape)


def widen(part: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """A part of what `map_value` gave, as numbers that numpy knows; `dtype` is the tensor's own."""
    part = np.asarray(part)
    if dtype == "bfloat16":
        return (part.astype(np.uint32) << 16).view(np.float32)
    code = CODES.get(dtype, ("", 0))[0]
    return _FLOAT8[code][part] if code in _FLOAT8 else part


def _decode(raw: np.ndarray[Any, Any], code: str, stored: list[int], value: Value) -> np.ndarray[Any, Any]:
    if value.dtype not in CODES:
        return raw
    if code == "BF16":
        wide: np.ndarray[Any, Any] = raw.view("<u2").astype(np.uint32) << 16
        return np.asarray(wide.view(np.float32).reshape(stored))
    if code.startswith("F8"):
        return np.asarray(_FLOAT8[code][raw].reshape(stored))
    return raw.view(np.dtype(value.dtype)).reshape(value.shape)


def float8_tables() -> dict[str, np.ndarray[Any, Any]]:
    byte = np.arange(256, dtype=np.uint16)
    exponent, mantissa = (byte >> 3 & 15).astype(np.int32), (byte & 7).astype(np.float32)
    magnitude = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7)).astype(
        np.float32
    )
    magnitude[byte & 0x7F == 0x7F] = np.nan
    scale = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan)).astype(np.float32)
    return {
        "F8_E4M3": np.where(byte >= 128, -magnitude, magnitude),
        "F8_E5M2": (byte << 8).view(np.float16).astype(np.float32),
        "F8_E8M0": scale,
    }


_FLOAT8 = float8_tables()
