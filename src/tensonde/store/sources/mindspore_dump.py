"""Dumps of MindSpore: `rank_0/<net>/<graph>/<iteration>/<type>.<op>.<task>.<stream>.<time>.<input|output>.<slot>.<format>[.<dtype>].npy`.

The op's name is taken as it is (`Default_fc-Dense_MatMul-op0`), its slots become indices, and the time in the name gives the
order. A parameter (`Parameter.fc_weight...`) becomes `fc_weight:value`.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.damage import read_file
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.mindspore_ckpt import TYPES
from tensonde.store.sources.npy import entry_of, load
from tensonde.store.sources.source import TensorSource

Array = np.ndarray[Any, Any]

NAME = re.compile(
    r"(?P<type>[^.]+)\.(?P<op>.+)\.(?P<task>\d+)\.(?P<stream>\d+)\.(?P<time>\d+)"
    r"\.(?P<way>input|output)\.(?P<slot>\d+)(?:\.(?P<format>[A-Za-z_0-9]+))?(?:\.(?P<dtype>[A-Za-z0-9]+))?"
)
_RANK = re.compile(r"(?:rank|device)_?(\d+)$")


@dataclass(frozen=True, slots=True)
class Named:
    path: Path
    rank: int
    step: int
    type: str
    op: str
    time: int
    role: str
    slot: int
    dtype: str | None


class MindSporeDump(TensorSource):
    kind, format = "mindspore-dump", "mindspore"

    def _entries(self) -> list[Entry]:
        files = [named for path in self.path.rglob("*.npy") if (named := self._named(path)) is not None]
        unconverted = sum(1 for path in self.path.rglob("*.output.*") if path.suffix != ".npy" and path.is_file())
        if unconverted:
            self.problems.append(
                f"{unconverted} files in {self.path} are in Ascend's own format; convert them with msaccucmp first"
            )
        files.sort(key=lambda named: (named.rank, named.step, named.time, named.op, named.role, named.slot))
        alone = Counter((n.rank, n.step, n.op, n.type, n.role) for n in files)
        found: list[Entry] = []
        self._paths: dict[int, Path] = {}
        for named in files:
            role = "value" if named.type == "Parameter" else named.role
            several = alone[named.rank, named.step, named.op, named.type, named.role] > 1
            site = f"{named.op}:{role}" + (f"[{named.slot}]" if several else "")
            try:
                entry = entry_of(
                    named.path, site, dtype=named.dtype, step=named.step, rank=named.rank, order=len(found), type=named.type,
                    kind="parameter" if role == "value" else "op", phase="forward",
                )  # fmt: skip
            except RecordingError as problem:
                self.problems.append(str(problem))
                continue
            self._paths[entry.order] = named.path
            found.append(entry)
        if not found and not self.problems:
            raise RecordingError(f"{self.path} holds no tensor of a MindSpore dump.")
        return found

    def _named(self, path: Path) -> Named | None:
        stem = self._mapping(path.parent).get(path.name, path.name).removesuffix(".npy")
        match = NAME.fullmatch(stem)
        if match is None:
            return None
        parts = path.parent.relative_to(self.path).parts if path.parent != self.path else ()
        whole = (*self.path.absolute().parts, *parts)
        rank = next((int(found[1]) for part in reversed(whole) if (found := _RANK.match(part))), 0)
        step = int(path.parent.name) if path.parent.name.isdigit() else -1
        return Named(
            path, rank, step, match["type"], match["op"], int(match["time"]), "in" if match["way"] == "input" else "out",
            int(match["slot"]), TYPES.get(match["dtype"] or ""),
        )  # fmt: skip

    def _mapping(self, folder: Path) -> dict[str, str]:
        """Names that were too long for a file are replaced by numbers, which `mapping.csv` explains."""
        known = self.__dict__.setdefault("_mappings", {})
        if folder not in known:
            known[folder] = {}
            try:
                lines = read_file(folder / "mapping.csv").decode().splitlines()
                known[folder] = {row[0]: row[1] for row in csv.reader(lines) if len(row) >= 2}
            except (OSError, ValueError, csv.Error):
                pass
        mapping: dict[str, str] = known[folder]
        return mapping

    def _made(self, entry: Entry) -> Array:
        return load(self._paths[entry.order])


def looks_like(folder: Path) -> bool:
    """Whether any file in it is named as MindSpore names them."""
    return any(NAME.fullmatch(path.name.removesuffix(".npy")) for path in folder.rglob("*.npy")) or any(
        path.name == "mapping.csv" for path in folder.rglob("mapping.csv")
    )
