"""Tensors that a recording captured, and those of the dump inside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tensonde.errors import RecordingError
from tensonde.store.damage import reading
from tensonde.store.reader import Recording
from tensonde.store.sources.dumped import TensondeDump
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.source import TensorSource
from tensonde.store.values import read_header

INNER = "dump"
"""Where a recording keeps the dump that was made with it."""


class RecordedValues(TensorSource):
    kind, format = "recording", "tensonde"

    def __init__(self, path: Path, recording: Recording) -> None:
        super().__init__(path)
        self._recording = recording

    def _entries(self) -> list[Entry]:
        found: list[Entry] = []
        for rank in self._recording.ranks:
            sites = {site.address: site for site in rank.sites.values()}
            for value in rank.values:
                try:
                    with reading(value.path, "a captured tensor"):
                        _, _, _, offset = read_header(value.path)
                except RecordingError as problem:
                    self.problems.append(str(problem))
                    continue
                site = sites.get(value.site)
                found.append(
                    Entry(
                        value.site, value.dtype, value.shape, value.nbytes, value.path, offset,
                        step=value.moment.step, phase=str(value.moment.phase), call=value.moment.call, rank=rank.rank,
                        order=len(found), kind=str(site.kind) if site else "", type=site.type if site else "",
                    )
                )  # fmt: skip
            self.problems += rank.problems
        inner = self._recording.path / INNER
        if inner.is_dir():
            dump = TensondeDump(inner)
            found += [replace(entry, order=len(found) + k) for k, entry in enumerate(dump.entries)]
            self.problems += dump.problems
        return found
