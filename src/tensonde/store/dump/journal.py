"""The journal of a dump: a line is written before its tensor's bytes are, so that whatever is lost has a name.

Besides tensors there are lines `moved` (the step had ended earlier: what came since belongs to the next, and its calls count
from 0) and `lost` (only this many bytes of that file are good). A line that a kill cut off is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tensonde.model.site import Address
from tensonde.store.damage import open_file
from tensonde.store.dump.layout import INDEX, SCHEMA
from tensonde.store.files import Appender
from tensonde.store.format import TEMPORARY

BATCH = 10_000


class Journal:
    """The writing side. One thread at a time; raises OSError. A line is whole, or cut off at the end of the file."""

    def __init__(self, path: Path) -> None:
        self._file = Appender(path)

    def append(self, line: dict[str, Any]) -> None:
        mend = b"\n" if self._file.torn else b""
        self._file.append(mend + json.dumps(line).encode() + b"\n")
        self._file.torn = False

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Corrections:
    """What later lines say about earlier ones."""

    moved: tuple[tuple[int, int, int], ...]
    """(first, last, to step)"""
    lost: tuple[tuple[str, int], ...]
    """(file, bytes of it that are good)"""


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        for line in file:
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(content, dict):
                yield content


def corrections(path: Path) -> Corrections:
    moved, lost = [], []
    for line in _lines(path):
        try:
            if "moved" in line:
                moved.append((int(line["moved"]), int(line["last"]), int(line["to"])))
            elif "lost" in line:
                lost.append((str(line["lost"]), int(line["good"])))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return Corrections(tuple(moved), tuple(lost))


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of the index, corrected; `complete` is what the file's size says. Raises OSError."""
    known = corrections(path)
    sizes: dict[str, int] = {}
    good = dict(known.lost)
    moved: Counter[tuple[int, str]] = Counter()
    for line in _lines(path):
        if "ord" not in line or "file" not in line:
            continue
        file = str(line["file"])
        if file not in sizes:
            sizes.clear()  # one step after the other
            try:
                sizes[file] = (path.parent / file).stat().st_size
            except OSError:
                sizes[file] = 0
        try:
            row = {
                **line, **asdict(Address.of(str(line["site"]))),
                "complete": line["offset"] + line["nbytes"] <= min(sizes[file], good.get(file, sizes[file])),
            }  # fmt: skip
            for first, last, step in known.moved:
                if first <= line["ord"] <= last:
                    key = (first, line["site"])
                    row |= {"step": step, "call": moved[key]}
                    moved[key] += 1
        except (KeyError, TypeError, ValueError):
            continue
        yield row


def close_journal(path: Path) -> tuple[int, int]:
    """Make the Parquet index of a journal, and remove the journal. How many tensors are whole, and their bytes. Raises OSError."""
    draft = path.with_name(INDEX + TEMPORARY)
    whole = size = 0
    try:
        with pq.ParquetWriter(draft, SCHEMA) as writer:
            batch: list[dict[str, Any]] = []
            for row in rows(path):
                batch.append(row)
                if row["complete"]:
                    whole, size = whole + 1, size + row["nbytes"]
                if len(batch) >= BATCH:
                    writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
                    batch = []
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
        draft.replace(path.with_name(INDEX))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    path.unlink()
    return whole, size
