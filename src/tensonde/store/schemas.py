"""The columns of a recording's tables."""

from __future__ import annotations

import pyarrow as pa

from tensonde.digest.layout import EXPONENT_BINS, ROW

DIGEST_FIELDS = tuple(name for name in ROW.names or () if name != "reserved")


def _column(name: str) -> pa.Field:
    if name == "exponents":
        kind = pa.list_(pa.field("item", pa.uint16(), nullable=False), EXPONENT_BINS)
    else:
        kind = pa.from_numpy_dtype(ROW[name])
    return pa.field(name, kind, nullable=False)


DIGEST_SCHEMA = pa.schema([pa.field("ord", pa.int64(), nullable=False), *map(_column, DIGEST_FIELDS)])
"""`ord` is the row's place in all that this rank recorded: it survives the loss of a segment, and SQL can
sort by it."""

SCALAR_SCHEMA = pa.schema(
    [
        pa.field("ord", pa.int64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
