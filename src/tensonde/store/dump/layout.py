"""What a dump looks like on disk: its version, its files, and the columns of its index.

More keys and columns may be added in version 1; anything else needs a new version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tensonde.errors import UsageError
from tensonde.store.files import dump_json, replace_file
from tensonde.version import __version__

FORMAT_VERSION = 1
MANIFEST = "dump.json"
KIND = "tensonde-dump"
_KINDS = (KIND, "sonde-dump")
"""The second is the name of dumps made before the project was renamed."""
STEPS = "steps"
INDEX = "index.parquet"
JOURNAL = "journal.jsonl"
RANK = "rank_"

SCHEMA = pa.schema(
    [
        ("ord", pa.int64()), ("step", pa.int64()), ("phase", pa.string()), ("call", pa.int32()),
        ("site", pa.string()), ("name", pa.string()), ("role", pa.string()), ("index", pa.int32()),
        ("kind", pa.string()), ("type", pa.string()), ("dtype", pa.string()), ("shape", pa.list_(pa.int64())),
        ("file", pa.string()), ("key", pa.string()), ("offset", pa.int64()), ("nbytes", pa.int64()),
        ("complete", pa.bool_()),
    ]
)  # fmt: skip


def is_dump(folder: Path) -> bool:
    """Whether Tensonde made this folder as a dump."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("kind") in _KINDS


def step_file(step: int, part: int) -> str:
    """Relative to the rank's folder."""
    return f"{STEPS}/{step:06d}{f'-{part}' if part else ''}.safetensors"


def check_free(folder: Path) -> None:
    """An earlier dump is never overwritten: UsageError."""
    if (folder / MANIFEST).exists() or any(folder.glob(f"{RANK}*")):
        raise UsageError(f"{folder} already holds a dump; remove it first, or choose another path or net_name.")


def create_dump(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Make the folder of a dump. Raises UsageError when it cannot be made, or an earlier dump is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_free(folder)
        content = {
            **facts,
            "format": FORMAT_VERSION,
            "kind": KIND,
            "tensonde": __version__,
            "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        replace_file(folder / MANIFEST, dump_json(content, indent=2) + b"\n")
    except OSError as problem:
        raise UsageError(f"the dump cannot be made in {folder}: {problem.strerror}; choose another path.") from None
    return folder


def claim_rank(folder: Path, rank: int) -> Path:
    """This process's own folder in the dump: `rank_0`, or `rank_0-<pid>` where another process has it. Raises OSError."""
    for name in (f"{RANK}{rank}", f"{RANK}{rank}-{os.getpid()}"):
        try:
            (folder / name).mkdir()
            (folder / name / STEPS).mkdir()
            return folder / name
        except FileExistsError:
            continue
    raise FileExistsError(f"{folder / name} exists")
