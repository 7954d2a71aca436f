"""From rows to columns: the caller's structured array or list of scalars becomes an Arrow record batch.

The batch owns its memory: nothing of the caller's buffer is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tensonde.digest.layout import COUNTS, EXPONENT_BINS, ROW, STATS
from tensonde.store.schemas import DIGEST_SCHEMA, SCALAR_SCHEMA

_INT64, _UINT16, _FLOAT64 = pa.int64(), pa.uint16(), pa.float64()
_SMALL = tuple((name, pa.from_numpy_dtype(ROW[name])) for name in ("step", "site", "call", "phase", "dtype", "flags"))
_EXPONENTS = DIGEST_SCHEMA.field("exponents").type
_WORDS = ROW.itemsize // 8
_FIRST_WORD = ROW.fields["count"][1] // 8  # type: ignore[index]
_WIDE = (*((name, _INT64) for name in COUNTS), *((name, _FLOAT64) for name in STATS))


def digest_batch(rows: np.ndarray[Any, Any], first: int) -> pa.RecordBatch:
    """`rows` (of dtype ROW) as a batch whose `ord` starts at `first`. Raises ValueError for another array."""
    if rows.dtype != ROW or rows.ndim != 1:
        raise ValueError(f"digests must be one-dimensional of dtype ROW, not {rows.ndim}-d of {rows.dtype}")
    rows = np.ascontiguousarray(rows)
    n = len(rows)
    build, wrap = pa.Array.from_buffers, pa.py_buffer
    columns = [build(_INT64, n, [None, wrap(np.arange(first, first + n, dtype=np.int64))])]
    for name, kind in _SMALL:
        columns.append(build(kind, n, [None, wrap(rows[name].copy())]))
    # The counts and statistics are eight bytes each and side by side: one transposed copy takes them all, in half the
    # time of a copy each.
    block = rows.view(np.int64).reshape(n, _WORDS)[:, _FIRST_WORD : _FIRST_WORD + len(_WIDE)].T.copy()
    wide = wrap(block)
    for index, (_, kind) in enumerate(_WIDE):
        columns.append(build(kind, n, [None, wide.slice(index * n * 8, n * 8)]))
    bins = build(_UINT16, n * EXPONENT_BINS, [None, wrap(rows["exponents"].copy())])
    columns.append(build(_EXPONENTS, n, [None], children=[bins]))
    return pa.RecordBatch.from_arrays(columns, schema=DIGEST_SCHEMA)


def scalar_batch(scalars: Sequence[tuple[int, str, float]], first: int) -> pa.RecordBatch:
    """`scalars` as (step, name, value) in a batch whose `ord` starts at `first`."""
    steps, names, values = zip(*scalars, strict=True)
    orders = range(first, first + len(scalars))
    columns = [
        column(orders, _INT64),
        column(steps, _INT64),
        column(names, pa.string()),
        column(values, _FLOAT64),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCALAR_SCHEMA)


def column(values: Collection[Any], kind: pa.DataType) -> pa.Array:
    """Numbers or strings. `pa.array` would do the same and import pandas where it is installed, which takes half a second."""
    if kind == pa.string():
        encoded = [text.encode() for text in values]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    else:
        parts = [None, pa.py_buffer(np.array(list(values), dtype="float64" if kind == _FLOAT64 else str(kind)))]
    return pa.Array.from_buffers(kind, len(values), parts)


def digest_rows(table: pa.Table, sites: Sequence[int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The way back: the rows of these sites, and the `ord` of each."""
    chosen = np.flatnonzero(np.isin(table["site"].to_numpy(), sites))
    rows = np.zeros(len(chosen), ROW)
    for name in (*(name for name, _ in _SMALL), *COUNTS, *STATS):
        rows[name] = table[name].to_numpy()[chosen]
    if len(chosen):
        bins = table["exponents"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        rows["exponents"] = bins.reshape(-1, EXPONENT_BINS)[chosen]
    return rows, table["ord"].to_numpy()[chosen]
