"""safetensors files: eight bytes of length, a JSON header, raw bytes. The header alone is read here."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

from tensonde.errors import RecordingError
from tensonde.store.damage import open_file, reading
from tensonde.store.documents import read_text
from tensonde.store.dtypes import SAFETENSORS, SIZES
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.notes import FORMER_NOTES, NOTES, in_order, noted, read_notes
from tensonde.store.sources.source import TensorSource

HEADER_LIMIT = 100_000_000
"""What the format itself allows."""
SUFFIX = ".safetensors"


def looks_like(start: bytes) -> bool:
    """From the first bytes of a file."""
    return len(start) > 8 and struct.unpack("<Q", start[:8])[0] <= HEADER_LIMIT and start[8:9] == b"{"


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, str], int, int]:
    """The tensors, the metadata, where the bytes begin, and the file's size. Raises RecordingError."""
    with reading(path, "a safetensors file"):
        with open_file(path) as file:
            start = file.read(8)
            size = file.seek(0, 2)
            file.seek(8)
            (length,) = struct.unpack("<Q", start)
            if length > min(HEADER_LIMIT, size - 8):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            header = read_text(file.read(length))
        if not isinstance(header, dict) or not all(isinstance(tensor, dict) for tensor in header.values()):
            raise ValueError("its header is no list of tensors by name")
        return header, header.pop("__metadata__", {}), 8 + length, size


def entries_of(path: Path) -> list[Entry]:
    """Every tensor of a file, in the order of its bytes. Raises RecordingError, also when the file is truncated."""
    header, metadata, begin, size = read_header(path)
    found = []
    notes = read_notes(metadata.get(NOTES, metadata.get(FORMER_NOTES)) if isinstance(metadata, dict) else None)
    with reading(path, "a safetensors file"):
        ordered = sorted(header.items(), key=lambda item: (item[1]["data_offsets"][0], item[0]))
        for key, tensor in ordered:
            first, last = tensor["data_offsets"]
            dtype = SAFETENSORS.get(tensor["dtype"], str(tensor["dtype"]).lower())
            shape = tuple(int(n) for n in tensor["shape"])
            if not 0 <= first <= last or min(shape, default=0) < 0:
                raise ValueError(f"{key} has the shape {list(shape)} and lies in bytes {first} to {last}")
            if dtype in SIZES and last - first != math.prod(shape) * SIZES[dtype]:
                raise ValueError(f"{key} has {last - first} bytes, which are not {dtype}{list(shape)}")
            if begin + last > size:
                raise RecordingError(
                    f"{path} is truncated: {key} ends at byte {begin + last}, and the file has {size}."
                )
            entry = Entry(
                f"{key}:value", dtype, shape, last - first, path, begin + first, kind="parameter", phase="optimizer"
            )
            found.append(noted(notes, key, entry))
    return found


class SafetensorsFile(TensorSource):
    kind, format = "checkpoint", "safetensors"

    def _entries(self) -> list[Entry]:
        return in_order(entries_of(self.path))
