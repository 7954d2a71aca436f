"""A table on disk as numbered segments: `000000.arrows` while it grows, `000000.parquet` once it is full.

An .arrows file is an Arrow IPC stream without its end mark: the schema, then one message a batch, each
written whole.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tensonde.store.files import Appender
from tensonde.store.format import CLOSED, LIVE, TEMPORARY

log = logging.getLogger("tensonde.store")

ROW_GROUP = 1 << 16
_DAMAGE = (pa.ArrowException, OSError, ValueError, MemoryError)
BATCHES = 4096
"""Batches a segment, at most: each takes its time to read, however small it is."""


class SegmentLog:
    """Appends batches of one schema to a folder, and hands each full segment to `retire`. One thread at a
    time.

    `append` raises OSError as it comes and then nothing of that batch is kept; the next one opens a new
    segment, so that whatever the failure left behind spoils no later batch.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, limit: int, retire: Callable[[Path], None]) -> None:
        self._folder, self._limit, self._retire = folder, limit, retire
        self._head = bytes(schema.serialize())
        self._next = self._count = 0
        self._file: Appender | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        message = memoryview(batch.serialize())
        try:
            file = self._file
            if file is None:
                file = self._file = Appender(self._folder / f"{self._next:06d}{LIVE}")
                self._next, self._count = self._next + 1, 0
                file.append(self._head)
            file.append(message)
        except BaseException:
            self.rotate()
            raise
        self._count += 1
        if file.size >= self._limit or self._count >= BATCHES:
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


def read_stream(content: pa.Buffer) -> tuple[pa.Table | None, str]:
    """The whole batches at the start of an Arrow stream (None: there is none), and what is wrong after them,
    or
    "". Never raises."""
    batches: list[pa.RecordBatch] = []
    wrong = ""
    try:
        with pa.ipc.open_stream(content) as stream:
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
    except _DAMAGE as error:
        wrong = _line(error)
    try:
        # Thousands of small chunks would make every later step slow.
        return pa.Table.from_batches(batches).combine_chunks() if batches else None, wrong
    except _DAMAGE as error:  # such as a column's name that is no text
        return None, _line(error)


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def compact(path: Path) -> Path:
    """Rewrite a finished .arrows file as Parquet and remove it. Raises OSError or ArrowException, and then
    it stays.

    The Parquet file is on the disk before the .arrows file goes, so a power cut costs neither.
    """
    table, _ = read_stream(pa.py_buffer(path.read_bytes()))
    if table is None:
        return path
    target = path.with_suffix(CLOSED)
    draft = target.with_name(target.name + TEMPORARY)
    try:
        write_parquet(table, draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    path.unlink()
    log.debug("%s: %d rows, %d bytes", target, table.num_rows, target.stat().st_size)
    return target


def write_parquet(table: pa.Table, path: Path) -> None:
    """As small as is cheap: dictionaries where few values repeat, split bytes for floats, checksums against
    rot."""
    import pyarrow.parquet as pq  # here, for it is slow to import, and a training does not wait for this

    schema = table.schema
    floats = [f.name for f in schema if pa.types.is_floating(f.type)]
    counted = [f.name for f in schema if f.name in ("ord", "step")]
    repeated = [f.name for f in schema if f.name not in floats and f.name not in counted and f.name != "exponents"]
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
