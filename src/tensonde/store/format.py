"""What a recording looks like on disk: the version, the names of its files, and the columns of its tables.

What may change without a new FORMAT_VERSION, because every reader of version 1 must bear it:
  * more keys in run.json, session.json and in any line of a .jsonl file (unknown keys are ignored);
  * more columns in digests or scalars (unknown columns are ignored);
  * more files in a folder, more names in `tensonde.digest.layout.DTYPES`, more phases.
What needs a new FORMAT_VERSION, and a golden recording in tests/golden/: removing or renaming a file, key or
column; another type or meaning for one; another order of rows. A reader refuses a version newer than its own.
"""

from __future__ import annotations

import pyarrow as pa

from tensonde.digest.layout import EXPONENT_BINS, ROW

FORMAT_VERSION = 1

MANIFEST = "run.json"
SESSION = "session.json"
FAILURES = "failures.log"
SITES = "sites.jsonl"
HITS = "hits.jsonl"
EVENTS = "events.jsonl"
FACTS = "facts.json"
FINDINGS = "findings.json"
DIGESTS = "digests"
SCALARS = "scalars"
VALUES = "values"
LIVE, CLOSED, VALUE = ".arrows", ".parquet", ".safetensors"
TEMPORARY = ".tmp"
"""Suffix of a file that is not finished; readers ignore it."""

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
