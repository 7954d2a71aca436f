"""The reading side of a recording: opens what a run left on disk, whole or damaged, finished or still
growing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tensonde.errors import RecordingError
from tensonde.model.finding import Finding
from tensonde.model.graph import GraphRecord
from tensonde.model.site import Site
from tensonde.model.trace import Trace
from tensonde.model.watchpoint import Hit
from tensonde.store import format as fmt
from tensonde.store.codec import finding_in, hit_in, site_in
from tensonde.store.damage import reason
from tensonde.store.documents import json_lines, json_objects, read_json
from tensonde.store.ending import Ending, ending_of
from tensonde.store.files import numbered
from tensonde.store.graphs import FOLDER as GRAPHS
from tensonde.store.graphs import read_graph
from tensonde.store.liveness import alive
from tensonde.store.resolve import resolve
from tensonde.store.shapes import MANIFEST_SHAPE, SESSION_SHAPE, shaped
from tensonde.store.traces import FOLDER as TRACES
from tensonde.store.traces import read_trace
from tensonde.store.whereabouts import read_whereabouts

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tensonde.store.tables import StoredTable
    from tensonde.store.values import Value

Read = TypeVar("Read")
Steps = range | tuple[int, int] | None
"""Steps to read: a range, or (first, last) with both included; None is all."""


class Rank:
    """One process's part of a recording. Read from disk at each access, except `sites`, `hits`, `findings`,
    `values` and `session`, which are read once: open the recording again to see what a live run has added.

    One thread at a time. What it returns belongs to the caller. Damage never raises: what cannot be read is
    skipped, and `problems` says what and why.
    """

    def __init__(self, folder: Path, exit_code: int | None = None) -> None:
        """`exit_code` is that of the whole run, where it is over."""
        self.folder = folder
        self.name = folder.name
        self.exit_code = exit_code
        self.problems: list[str] = []

    @cached_property
    def session(self) -> dict[str, Any]:
        """The facts of session.json; {} when it is missing or damaged. Of a session that was not closed, `steps` is how far it
        has come."""
        found: dict[str, Any] = self._document(fmt.SESSION, lambda path: read_json(path, dict), {}, missing=True)
        version = found.get("format", fmt.FORMAT_VERSION)
        if not isinstance(version, int) or version > fmt.FORMAT_VERSION:
            self._problem(
                f"{self.name}/{fmt.SESSION} is of format {version!r:.40}, and this Tensonde reads up to {fmt.FORMAT_VERSION}; "
                "upgrade Tensonde to read all of it"
            )
        if not found.get("closed") and "steps" not in found:
            where = read_whereabouts(self.folder)
            if where is not None:
                found["steps"] = where.step
        return shaped(found, SESSION_SHAPE, lambda text: self._problem(f"{self.name}/{fmt.SESSION}: {text}"))

    @property
    def rank(self) -> int:
        given = self.session.get("rank", self.name.removeprefix("rank").partition("-")[0])
        return rank_number(given)

    @property
    def closed(self) -> bool:
        return bool(self.session.get("closed"))

    @property
    def live(self) -> bool:
        """Still being written: not closed, and its process runs on this machine."""
        return not self.closed and alive(self.session.get("process") or {})

    @property
    def state(self) -> str:
        return "finished" if self.closed else "live" if self.live else "killed"

    @property
    def ending(self) -> Ending | None:
        """What ended the process, where its program did not end by itself."""
        if self.live:
            return None
        cwd = self.session.get("cwd")
        code = self.exit_code
        return ending_of(self.folder, closed=self.closed, exit_code=code, cwd=cwd if isinstance(cwd, str) else "")

    @property
    def seconds(self) -> float | None:
        """From the session's start to its close, or to its last write."""
        try:
            start = datetime.fromisoformat(self.session["started"]).timestamp()
            if self.closed:
                return datetime.fromisoformat(self.session["closed"]).timestamp() - start
            written = [path.stat().st_mtime for path in self.folder.rglob("*") if path.is_file()]
            return max([start, *written]) - start
        except (OSError, KeyError, TypeError, ValueError, OverflowError):
            return None

    @cached_property
    def sites(self) -> dict[int, Site]:
        """By id, in the order first seen."""
        found = json_objects(self.folder / fmt.SITES, site_in, self._problem)
        return {site.id: site for site in found}

    def digests(
        self,
        sites: Collection[int] | None = None,
        steps: Steps = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The digests in recorded order: of those sites, in those steps, with those columns (see
        DIGEST_SCHEMA)."""
        only = None if sites is None else ("site", sites)
        return self.digest_table.read(columns=columns, steps=steps, only=only)

    def scalars(self, name: str | None = None) -> pa.Table:
        """ord, step, name, value, in recorded order."""
        return self.scalar_table.read(only=None if name is None else ("name", [name]))

    @cached_property
    def hits(self) -> list[Hit]:
        return json_objects(self.folder / fmt.HITS, hit_in, self._problem)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Each with `kind` and `time`."""
        return json_lines(self.folder / fmt.EVENTS, self._problem)

    @cached_property
    def findings(self) -> list[Finding]:
        return self._document(fmt.FINDINGS, lambda path: [finding_in(entry) for entry in read_json(path, list)], [])

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the adapter knows of the training beside tensors; {} where it has not said."""
        found: dict[str, Any] = self._document(fmt.FACTS, lambda path: _numbers(read_json(path, dict)), {})
        return found

    @cached_property
    def traces(self) -> list[Trace]:
        """Steps that were recorded op by op, in the order that they were made."""
        return self._documents(numbered(self.folder / TRACES), read_trace)

    @cached_property
    def graphs(self) -> list[GraphRecord]:
        """The graphs that were compiled, in the order that they were."""
        return self._documents(numbered(self.folder / GRAPHS), read_graph)

    @cached_property
    def values(self) -> list[Value]:
        """The captured tensors in the order captured, without their content: see `load`."""
        from tensonde.store.values import read_header

        return self._documents(
            sorted((self.folder / fmt.VALUES).glob(f"*{fmt.VALUE}")), lambda path: read_header(path)[0]
        )

    def _document(self, name: str, read: Callable[[Path], Read], otherwise: Read, missing: bool = False) -> Read:
        """What `read` makes of one file; `otherwise` where it is missing or damaged (damage is reported)."""
        try:
            return read(self.folder / name)
        except FileNotFoundError as error:
            if missing:
                self._problem(f"{self.name}/{name} cannot be read: {reason(error)}")
        except Exception as error:  # any bytes may stand in the file
            self._problem(f"{self.name}/{name} cannot be read: {reason(error)}")
        return otherwise

    def _documents(self, paths: list[Path], read: Callable[[Path], Read]) -> list[Read]:
        """What `read` makes of each file that is whole."""
        found: list[Read] = []
        for path in paths:
            try:
                found.append(read(path))
            except Exception as error:  # any bytes may stand in the file
                self._problem(f"{self.name}/{path.parent.name}/{path.name} cannot be read: {reason(error)}")
        return found

    def load(self, value: Value) -> np.ndarray[Any, Any]:
        """The tensor; bfloat16 and float8 as float32 of the same values (`value.dtype` keeps the name)."""
        from tensonde.store.values import load_value

        return load_value(value)

    @property
    def thinned(self) -> dict[str, int]:
        """The tables whose older steps were thinned, each with how many of its oldest steps one is kept of."""
        found = {fmt.DIGESTS: self.digest_table.one_in(), fmt.SCALARS: self.scalar_table.one_in()}
        return {table: steps for table, steps in found.items() if steps > 1}

    @cached_property
    def digest_table(self) -> StoredTable:
        """For readers that stream, such as `query`."""
        from tensonde.store.schemas import DIGEST_SCHEMA
        from tensonde.store.tables import StoredTable

        return StoredTable(self.folder / fmt.DIGESTS, DIGEST_SCHEMA, self._problem)

    @cached_property
    def scalar_table(self) -> StoredTable:
        from tensonde.store.schemas import SCALAR_SCHEMA
        from tensonde.store.tables import StoredTable

        return StoredTable(self.folder / fmt.SCALARS, SCALAR_SCHEMA, self._problem)

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


class Recording:
    """A run: its manifest and its ranks. Threads, ownership and damage as for `Rank`."""

    def __init__(self, path: Path, manifest: dict[str, Any], ranks: list[Rank]) -> None:
        self.path, self.manifest, self.ranks = path, manifest, ranks
        self._problems: list[str] = []

    @classmethod
    def open(cls, path: str | Path) -> Recording:
        """Open a run's folder, or what leads to one (see `resolve`). Raises RecordingError, never anything
        else."""
        folder, only = resolve(path)
        try:
            manifest: dict[str, Any] = read_json(folder / fmt.MANIFEST, dict)
        except (OSError, ValueError) as error:
            raise RecordingError(f"{folder / fmt.MANIFEST} is damaged and cannot be read: {reason(error)}") from error
        version = manifest.get("format")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise RecordingError(f"{folder / fmt.MANIFEST} is damaged: its format is {version!r:.40}")
        if version > fmt.FORMAT_VERSION:
            raise RecordingError(
                f"{folder} is a recording of format {version}, and this Tensonde reads up to "
                f"{fmt.FORMAT_VERSION}; upgrade Tensonde to open it"
            )
        told: list[str] = []
        manifest = shaped(manifest, MANIFEST_SHAPE, lambda text: told.append(f"{fmt.MANIFEST}: {text}"))
        code = manifest.get("exit_code")
        code = code if isinstance(code, int) else None
        ranks = [Rank(entry, code) for entry in _rank_folders(folder) if only in (None, entry.name)]
        opened = cls(folder, manifest, sorted(ranks, key=lambda rank: (rank.rank, rank.name)))
        opened._problems += told
        return opened

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def live(self) -> bool:
        return any(rank.live for rank in self.ranks)

    @property
    def state(self) -> str:
        """live if any rank is, else killed if any rank was, else finished; empty when no rank wrote."""
        states = {rank.state for rank in self.ranks}
        return next((state for state in ("live", "killed", "finished") if state in states), "empty")

    @property
    def hits(self) -> list[Hit]:
        """Of all ranks, and those of conditions that compare ranks."""
        across = json_objects(self.path / fmt.HITS, hit_in, self._problems.append)
        return [*(hit for rank in self.ranks for hit in rank.hits), *across]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for rank in self.ranks for event in rank.events]

    @property
    def findings(self) -> list[Finding]:
        """Of all ranks; `caused_by` is an index into this list."""
        found: list[Finding] = []
        for rank in self.ranks:
            base = len(found)
            found += [f if f.caused_by is None else replace(f, caused_by=base + f.caused_by) for f in rank.findings]
        return found

    @property
    def values(self) -> list[Value]:
        return [value for rank in self.ranks for value in rank.values]

    def load(self, value: Value) -> np.ndarray[Any, Any]:
        from tensonde.store.values import load_value

        return load_value(value)

    @property
    def problems(self) -> list[str]:
        """What was found damaged so far; it grows as more is read."""
        return [*self._problems, *(problem for rank in self.ranks for problem in rank.problems)]


def rank_number(given: Any) -> int:
    """As the session or the folder's name says it; 0 where that is no number."""
    return int(given) if str(given).isdecimal() and len(str(given)) < 10 else 0


def _numbers(value: Any) -> Any:
    """Numbers that JSON cannot hold are text in the file."""
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    return value


def _rank_folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.name.startswith("rank") and entry.is_dir())
    except OSError as error:
        raise RecordingError(f"{folder} cannot be listed: {error}") from error
