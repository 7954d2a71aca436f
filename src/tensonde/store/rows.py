"""A table as rows of Python values, and as the bytes of a file."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa

from tensonde.store.files import dump_json


def parquet_bytes(result: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(result, sink, compression="zstd")
    return bytes(sink.getvalue())


def rows_of(result: pa.Table) -> list[dict[str, Any]]:
    """As Python values; a map, which Arrow gives as pairs, as a dictionary."""
    maps = [field.name for field in result.schema if pa.types.is_map(field.type)]
    rows: list[dict[str, Any]] = result.to_pylist()
    for row in rows:
        row.update((name, dict(row[name])) for name in maps if row[name] is not None)
    return rows


def csv_bytes(result: pa.Table) -> bytes:
    """As programs expect it: a header, an empty cell for NULL, lists and maps as JSON."""

    def cell(value: Any) -> Any:
        return dump_json(value).decode() if isinstance(value, list | dict) else "" if value is None else value

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(result.column_names)
    writer.writerows([cell(value) for value in row.values()] for row in rows_of(result))
    return text.getvalue().encode()
