"""What a recording looks like on disk: the version and the names of its files. `schemas` has the columns of its tables.

What may change without a new FORMAT_VERSION, because every reader of version 1 must bear it:
  * more keys in run.json, session.json and in any line of a .jsonl file (unknown keys are ignored);
  * more columns in digests or scalars (unknown columns are ignored);
  * more files in a folder, more names in `tensonde.digest.layout.DTYPES`, more phases.
What needs a new FORMAT_VERSION, and a golden recording in tests/golden/: removing or renaming a file, key or
column; another type or meaning for one; another order of rows. A reader refuses a version newer than its own.
"""

from __future__ import annotations

FORMAT_VERSION = 2
"""2: large traces and graphs are compressed, `000000.json.gz`."""

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
COMPRESSED = ".gz"
TEMPORARY = ".tmp"
"""Suffix of a file that is not finished; readers ignore it."""
