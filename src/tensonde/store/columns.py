"""Between columns of Arrow and numpy; `ipc` writes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tensonde.digest.layout import COUNTS, EXPONENT_BINS, ROW, STATS
from tensonde.store.ipc import SMALL


def column(values: Collection[Any], kind: pa.DataType) -> pa.Array:
    """Numbers or strings. `pa.array` would do the same and import pandas where it is installed, which takes half a second."""
    if kind == pa.string():
        encoded = [text.encode() for text in values]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    else:
        parts = [None, pa.py_buffer(np.array(list(values), dtype="float64" if kind == pa.float64() else str(kind)))]
    return pa.Array.from_buffers(kind, len(values), parts)


def digest_rows(table: pa.Table, sites: Sequence[int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The way back: the rows of these sites, and the `ord` of each."""
    chosen = np.flatnonzero(np.isin(table["site"].to_numpy(), sites))
    rows = np.zeros(len(chosen), ROW)
    for name in (*SMALL, *COUNTS, *STATS):
        rows[name] = table[name].to_numpy()[chosen]
    if len(chosen):
        bins = table["exponents"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        rows["exponents"] = bins.reshape(-1, EXPONENT_BINS)[chosen]
    return rows, table["ord"].to_numpy()[chosen]
