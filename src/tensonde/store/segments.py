"""The segments of a table (see `ipc`): reading one that grows, and making Parquet of one that is full."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import pyarrow as pa

from tensonde.store.format import CLOSED, TEMPORARY

log = logging.getLogger("tensonde.store")

ROW_GROUP = 1 << 16
_DAMAGE = (pa.ArrowException, OSError, ValueError, MemoryError)


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
    target = replace_with(table, path.with_suffix(CLOSED))
    path.unlink()
    log.debug("%s: %d rows, %d bytes", target, table.num_rows, target.stat().st_size)
    return target


def replace_with(table: pa.Table, target: Path) -> Path:
    """Write a Parquet file that is there whole or not at all. Raises OSError or ArrowException."""
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
