"""Tensonde's own dumps, finished or cut short: the index where the dump was closed, else the journal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tensonde.errors import RecordingError
from tensonde.store.damage import reading
from tensonde.store.documents import read_json
from tensonde.store.dump import layout
from tensonde.store.dump.journal import rows
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.source import TensorSource

_RANK = re.compile(rf"{layout.RANK}(\d+)")
NAMED = 20
"""How many tensors that are not whole are named one by one."""


class TensondeDump(TensorSource):
    kind, format = "dump", "tensonde"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading(path / layout.MANIFEST):
            version = read_json(path / layout.MANIFEST, dict).get("format")
        if not isinstance(version, int) or version > layout.FORMAT_VERSION:
            raise RecordingError(
                f"{path} is a dump of format {version}, and this Tensonde reads up to {layout.FORMAT_VERSION}; upgrade Tensonde."
            )

    def _entries(self) -> list[Entry]:
        found: list[Entry] = []
        folders = [folder for folder in self.path.iterdir() if folder.is_dir() and _RANK.match(folder.name)]
        for folder in sorted(folders, key=lambda folder: (_number(folder), folder.name)):
            found += self._of_rank(folder)
        return found

    def _of_rank(self, folder: Path) -> list[Entry]:
        index, journal = folder / layout.INDEX, folder / layout.JOURNAL
        content: Iterable[dict[str, Any]]
        with reading(index if index.is_file() else journal, "the index of a dump"):
            if index.is_file():
                content = pq.read_table(index).to_pylist()
            elif journal.is_file():
                content = rows(journal)
            elif any((folder / layout.STEPS).glob("*.safetensors")):
                raise RecordingError(
                    f"the index of {folder} is missing: there is neither {layout.INDEX} nor {layout.JOURNAL}; "
                    "its step files are safetensors and can be read one by one."
                )
            else:
                return []
            return self._made_of(folder, content)

    def _made_of(self, folder: Path, content: Iterable[dict[str, Any]]) -> list[Entry]:
        found: list[Entry] = []
        missing: list[str] = []
        sizes: dict[str, int] = {}
        for row in content:
            file = str(row["file"])
            if file not in sizes:
                path = folder / file
                sizes[file] = path.stat().st_size if path.is_file() else -1
            if not row["complete"] or row["offset"] + row["nbytes"] > max(sizes[file], 0):
                missing.append(f"{row['site']} of step {row['step']}")
                continue
            found.append(
                Entry(
                    row["site"], row["dtype"], tuple(row["shape"]), row["nbytes"], folder / file, row["offset"],
                    row["step"], row["phase"], row["call"], _number(folder), row["ord"], row["kind"], row["type"],
                )
            )  # fmt: skip
        if missing:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            self.problems.append(f"not whole in {folder}, and left out: {', '.join(missing[:NAMED])}{more}")
        return found


def _number(folder: Path) -> int:
    found = _RANK.match(folder.name)
    return int(found[1]) if found else 0
