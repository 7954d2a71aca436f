"""A table on disk as numbered segments: `000000.arrows` while it grows, `000000.parquet` once it is full.

An .arrows file is an Arrow IPC stream without its end mark: the schema, then one message a batch, each
written whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sonde.store.files import Appender
from sonde.store.format import CLOSED, LIVE, TEMPORARY

ROW_GROUP = 1 << 16


class SegmentLog:
    """Appends batches of one schema to a folder, and hands each full segment to `retire`. One thread at a
    time.

    `append` raises OSError as it comes and then nothing of that batch is kept; the next one opens a new
    segment,
    so that whatever the failure left behind spoils no later batch.
    """

    def __init__(
        self, folder: Path, schema: pa.Schema, *, limit: int, retire: Callable[[Path], None]
    ) -> None:
        self._folder, self._limit, self._retire = folder, limit, retire
        self._head = bytes(schema.serialize())
        self._next = 0
        self._file: Appender | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        message = memoryview(batch.serialize())
        try:
            if self._file is None:
                self._file = Appender(self._folder / f"{self._next:06d}{LIVE}")
                self._next += 1
                self._file.append(self._head)
            self._file.append(message)
        except BaseException:
            self.rotate()
            raise
        if self._file.size >= self._limit:
            self.rotate()

    def rotate(self) -> None:
        """End the segment, if there is one with a batch in it, and give it to `retire`. Never raises
        OSError."""
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        if file.size > len(self._head):
            self._retire(file.path)
        else:
            with contextlib.suppress(OSError):
                file.path.unlink()


def read_stream(content: pa.Buffer) -> tuple[list[pa.RecordBatch], str]:
    """The whole batches at the start of an Arrow stream, and what is wrong after them ("" if nothing)."""
    batches: list[pa.RecordBatch] = []
    try:
        with pa.ipc.open_stream(content) as stream:
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        return batches, str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return batches, ""


def compact(path: Path) -> Path:
    """Rewrite a finished .arrows file as Parquet and remove it. Raises OSError or ArrowException, and then
    it stays.

    The Parquet file is on the disk before the .arrows file goes, so a power cut costs neither.
    """
    batches, _ = read_stream(pa.py_buffer(path.read_bytes()))
    if not batches:
        return path
    target = path.with_suffix(CLOSED)
    draft = target.with_name(target.name + TEMPORARY)
    try:
        write_parquet(pa.Table.from_batches(batches), draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    path.unlink()
    return target


def write_parquet(table: pa.Table, path: Path) -> None:
    """As small as is cheap: dictionaries where few values repeat, split bytes for floats, checksums against
    rot."""
    schema = table.schema
    floats = [f.name for f in schema if pa.types.is_floating(f.type)]
    counted = [f.name for f in schema if f.name in ("ord", "step")]
    repeated = [
        f.name for f in schema if f.name not in floats and f.name not in counted and f.name != "exponents"
    ]
    pq.write_table(
        table,
        path,
        compression="zstd",
        row_group_size=ROW_GROUP,
        use_dictionary=repeated,
        use_byte_stream_split=floats,
        column_encoding=dict.fromkeys(counted, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    )
