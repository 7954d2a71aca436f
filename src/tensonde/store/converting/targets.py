"""Writers of each format. None holds more than a piece of a tensor in memory, but for Parquet, which holds one tensor.

Each writes under a temporary name and takes its own only when all is done. They raise OSError as it comes, and RecordingError.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npformat

from tensonde.errors import UsageError
from tensonde.store.converting.naming import file_of, key_of, unique
from tensonde.store.dtypes import CODE_OF, PLAIN
from tensonde.store.dump.layout import claim_rank, create_dump
from tensonde.store.dump.stepfile import stored
from tensonde.store.dump.writer import DumpWriter, Seen
from tensonde.store.files import dump_json
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.notes import INDEX, NOTES, note_of
from tensonde.store.sources.parquet import SCHEMA

Pieces = Callable[[Entry], Iterator[np.ndarray[Any, Any]]]
"""The bytes of an entry, piece by piece."""
GROUP_BYTES = 64 << 20
PARQUET_LIMIT = (1 << 31) - 1


def npy_header(entry: Entry) -> bytes:
    """numpy has no bfloat16 and no float8: they are bare bytes of the right size, as ml_dtypes writes them."""
    kind = PLAIN.get(entry.dtype)
    size = entry.nbytes // max(1, int(np.prod(entry.shape, dtype=np.int64))) or 1
    descr = npformat.dtype_to_descr(kind) if kind is not None else f"<V{size}" if size > 1 else "|V1"
    import io

    buffer = io.BytesIO()
    npformat.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": entry.shape})
    return buffer.getvalue()


def write_npy(path: Path, entries: Sequence[Entry], pieces: Pieces) -> None:
    """A folder with a `.npy` a tensor, and an index of what they are."""
    path.mkdir(parents=True)
    names = unique([file_of(entry) for entry in entries])
    for entry, name in zip(entries, names, strict=True):
        file = path / f"{name}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "xb") as opened:
            opened.write(npy_header(entry))
            _pour(opened, pieces(entry))
    notes = {name: note_of(entry) for entry, name in zip(entries, names, strict=True)}
    (path / INDEX).write_bytes(dump_json(notes, indent=1) + b"\n")


def write_npz(path: Path, entries: Sequence[Entry], pieces: Pieces) -> None:
    """Arrays and nothing else: what each of them is stands in the comment of its member, which numpy passes over."""
    names = unique([key_of(entry) for entry in entries])
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for entry, name in zip(entries, names, strict=True):
            info = zipfile.ZipInfo(f"{name}.npy")
            info.comment = dump_json(note_of(entry))
            with archive.open(info, "w", force_zip64=True) as member:
                member.write(npy_header(entry))
                _pour(member, pieces(entry))


def write_safetensors(path: Path, entries: Sequence[Entry], pieces: Pieces) -> None:
    names = unique([key_of(entry) for entry in entries])
    header: dict[str, Any] = {}
    offset = 0
    for entry, name in zip(entries, names, strict=True):
        code, shape = stored(entry.dtype, entry.shape, entry.nbytes)
        if code == "U8" and entry.dtype in CODE_OF and entry.dtype != "uint8":
            code, shape = CODE_OF[entry.dtype], list(entry.shape)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [offset, offset + entry.nbytes]}
        offset += entry.nbytes
    odd = [
        entry
        for entry in entries
        if entry.step >= 0 or stored(entry.dtype, entry.shape, entry.nbytes)[1] != list(entry.shape)
    ]
    notes = {name: note_of(entry) for entry, name in zip(entries, names, strict=True)} if odd else {}
    metadata = {"format": "pt", **({NOTES: dump_json(notes).decode()} if notes else {})}
    text = dump_json({"__metadata__": metadata, **header})
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in entries:
            _pour(file, pieces(entry))


def write_parquet(path: Path, entries: Sequence[Entry], pieces: Pieces) -> None:
    with pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=["phase", "kind", "type", "dtype"]
    ) as writer:
        rows: list[dict[str, Any]] = []
        waiting = 0
        for k, entry in enumerate(entries):
            if entry.nbytes > PARQUET_LIMIT:
                raise UsageError(
                    f"{entry.site} has {entry.nbytes} bytes, and Parquet holds 2 GB in one value; choose safetensors."
                )
            content = b"".join(piece.tobytes() for piece in pieces(entry))
            rows.append({**note_of(entry), "ord": k, "nbytes": entry.nbytes, "content": content})
            waiting += entry.nbytes
            if waiting >= GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows, waiting = [], 0
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))


def write_dump(path: Path, entries: Sequence[Entry], pieces: Pieces) -> None:
    create_dump(path, {"net_name": "", "settings": {"converted": True}})
    for rank in sorted({entry.rank for entry in entries}):
        writer = DumpWriter(claim_rank(path, rank), {"rank": rank, "framework": ""}, asynchronous=False)
        for entry in entries:
            if entry.rank == rank:
                whole = list(pieces(entry))
                content = whole[0] if len(whole) == 1 else np.concatenate(whole or [np.empty(0, np.uint8)])
                seen = Seen(
                    entry.site,
                    max(entry.step, 0),
                    entry.phase,
                    entry.call,
                    entry.kind,
                    entry.type,
                    entry.dtype,
                    entry.shape,
                )
                writer.put(seen, content)
        writer.close()
        if writer.failure is not None:
            raise writer.failure


def _pour(file: IO[bytes], pieces: Iterator[np.ndarray[Any, Any]]) -> None:
    for piece in pieces:
        file.write(np.ascontiguousarray(piece).data)


WRITERS = {
    "npy": write_npy, "npz": write_npz, "safetensors": write_safetensors, "parquet": write_parquet, "dump": write_dump,
}  # fmt: skip
