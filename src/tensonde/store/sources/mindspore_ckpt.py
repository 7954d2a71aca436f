"""MindSpore's `.ckpt`: a protobuf message of tensors, read by hand and without reading the tensors.

    message Checkpoint  { repeated Value value = 1; }
    message Value       { string tag = 1; TensorProto tensor = 2; }
    message TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3; }

A tensor of more than 512 MB is written as several values with one tag, whose contents follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.damage import open_file, reason
from tensonde.store.dtypes import SIZES
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.source import TensorSource

Array = np.ndarray[Any, Any]

TYPES = {
    "Float64": "float64", "Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16",
    "Int64": "int64", "Int32": "int32", "Int16": "int16", "Int8": "int8",
    "UInt64": "uint64", "UInt32": "uint32", "UInt16": "uint16", "UInt8": "uint8", "Bool": "bool",
    "Complex64": "complex64", "Complex128": "complex128",
    "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2", "HiFloat8": "hifloat8",
}  # fmt: skip
_BY_LOWER = {name.lower(): dtype for name, dtype in TYPES.items()}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_TEXT = 1 << 16


@dataclass(slots=True)
class Tensor:
    tag: str = ""
    type: str = ""
    dims: list[int] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)


class Message:
    """A file of protobuf fields, walked over without holding it."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.size = file, size

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.file.read(1)
            if not byte or shift > 63:
                raise ValueError("a number is cut off")
            value |= (byte[0] & 0x7F) << shift
            if not byte[0] & 0x80:
                return value
            shift += 7

    def fields(self, end: int) -> Iterator[tuple[int, int, int]]:
        """(number, where its bytes begin or its value, length or -1 for a value) up to `end`; leaves the file there."""
        while self.file.tell() < end:
            key = self.varint()
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                yield number, self.varint(), -1
            elif kind == _BYTES:
                length = self.varint()
                begin = self.file.tell()
                if begin + length > end:
                    raise ValueError(f"field {number} at byte {begin} has {length} bytes, and {end - begin} are left")
                yield number, begin, length
                self.file.seek(begin + length)
            elif kind in (_FIXED64, _FIXED32):
                yield number, self.file.tell(), -1
                self.file.seek(8 if kind == _FIXED64 else 4, 1)
            else:
                raise ValueError(f"byte {self.file.tell()} is no field of a checkpoint")

    def text(self, begin: int, length: int) -> str:
        if length > _MOST_TEXT:
            raise ValueError(f"a name of {length} bytes")
        self.file.seek(begin)
        return self.file.read(length).decode()

    def value(self, begin: int, length: int) -> Tensor:
        found = Tensor()
        self.file.seek(begin)
        for number, at, size in self.fields(begin + length):
            if number == 1 and size >= 0:
                found.tag = self.text(at, size)
            elif number == 2 and size >= 0:
                self._tensor(found, at, size)
        return found

    def _tensor(self, found: Tensor, begin: int, length: int) -> None:
        self.file.seek(begin)
        for number, at, size in self.fields(begin + length):
            if number == 1 and size < 0:
                found.dims.append(at)
            elif number == 1:  # packed
                self.file.seek(at)
                while self.file.tell() < at + size:
                    found.dims.append(self.varint())
            elif number == 2:
                found.type = self.text(at, size)
            elif number == 3:
                found.parts.append((at, size))


def looks_like(path: Path) -> bool:
    """Whether the file begins as a checkpoint does: a value with a printable tag."""
    try:
        with open_file(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            message = Message(file, size)
            if message.varint() != 0x0A or message.varint() < 2 or message.varint() != 0x0A:
                return False
            tag = file.read(min(message.varint(), _MOST_TEXT)).decode()
            return bool(tag) and tag.isprintable()
    except (OSError, ValueError):
        return False


def read_tensors(path: Path) -> list[Tensor]:
    """Every tensor, with the parts of one that was split put together. Raises RecordingError."""
    found: list[Tensor] = []
    try:
        with open_file(path) as file:
            size = whole_size(file)
            file.seek(0)
            message = Message(file, size)
            for number, begin, length in message.fields(size):
                if number != 1 or length < 0:
                    raise ValueError(f"field {number} at byte {begin} does not belong there")
                tensor = message.value(begin, length)
                if found and found[-1].tag == tensor.tag:
                    found[-1].parts += tensor.parts
                else:
                    found.append(tensor)
    except (OSError, ValueError, OverflowError) as problem:
        raise RecordingError(
            f"{path} cannot be read as a MindSpore checkpoint, it may be truncated or encrypted: {reason(problem)}."
        ) from None
    return found


def whole_size(file: IO[bytes]) -> int:
    """Without the check sum that MindSpore may append: `crc_num` and ten digits."""
    size = file.seek(0, 2)
    if size >= 17:
        file.seek(size - 17)
        if file.read(7) == b"crc_num":
            return size - 17
    return size


class MindSporeCheckpoint(TensorSource):
    kind, format = "checkpoint", "mindspore"

    def _entries(self) -> list[Entry]:
        self._parts: dict[int, list[tuple[int, int]]] = {}
        found: list[Entry] = []
        for tensor in read_tensors(self.path):
            dtype = _BY_LOWER.get(tensor.type.lower(), tensor.type.lower())
            if dtype not in SIZES:
                self.problems.append(f"{tensor.tag} of {self.path} is of type {tensor.type or 'none'}; it is left out")
                continue
            nbytes = sum(size for _, size in tensor.parts)
            shape = () if tensor.dims == [0] and nbytes else tuple(tensor.dims)
            if nbytes != math.prod(shape) * SIZES[dtype]:
                raise RecordingError(
                    f"{self.path} is damaged: {tensor.tag} has {nbytes} bytes, which are not {dtype}{list(shape)}."
                )
            order = len(found)
            whole = len(tensor.parts) == 1
            if not whole:
                self._parts[order] = tensor.parts
            found.append(
                Entry(
                    f"{tensor.tag}:value",
                    dtype,
                    shape,
                    nbytes,
                    self.path if whole else None,
                    tensor.parts[0][0] if whole else 0,
                    phase="optimizer",
                    order=order,
                    kind="parameter",
                )
            )
        if not found:
            raise RecordingError(f"{self.path} is no checkpoint of MindSpore's: there is no tensor in it.")
        return found

    def _made(self, entry: Entry) -> Array:
        return np.concatenate(list(self.pieces(entry)) or [np.empty(0, np.uint8)])

    def pieces(self, entry: Entry, size: int = 1 << 24) -> Iterator[Array]:
        """Also of a tensor that is split, without putting it together."""
        if entry.file is not None:
            yield from super().pieces(entry, size)
            return
        rest: Array = np.empty(0, np.uint8)  # a part may end in the middle of an element
        width = SIZES[entry.dtype]
        for begin, length in self._parts.get(entry.order, ()):
            part = Entry(entry.site, "uint8", (length,), length, self.path, begin)
            for piece in super().pieces(part, size):
                joined = np.concatenate([rest, piece]) if len(rest) else piece
                cut = len(joined) - len(joined) % width
                rest = joined[cut:].copy()
                if cut:
                    yield joined[:cut]
