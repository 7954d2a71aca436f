"""One rank of a recording, kept open: what has not changed on disk is not read again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tensonde.model.finding import Finding
from tensonde.model.graph import GraphRecord
from tensonde.model.site import Site
from tensonde.model.trace import Trace
from tensonde.model.watchpoint import Hit
from tensonde.server.columns import DigestColumns, Segment
from tensonde.server.dumped import Dump
from tensonde.store import format as fmt
from tensonde.store.files import numbered
from tensonde.store.graphs import FOLDER as GRAPHS
from tensonde.store.reader import Rank, rank_number
from tensonde.store.traces import FOLDER as TRACES
from tensonde.store.traces import read_trace
from tensonde.store.values import Value

T = TypeVar("T")
Array = np.ndarray[Any, Any]
TRACES_KEPT = 4
AGAIN_SECONDS = 5.0
"""A diagnosis of a recording that still grows is not repeated sooner."""


class RecordedRank:
    """Any thread; calls take turns. What it returns is shared: nobody writes into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self._lock = threading.RLock()
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._columns = DigestColumns(Rank(folder).digest_table)
        self._traces: dict[Path, Trace] = {}
        self._dump: Dump | None = None
        self._diagnosed: tuple[Any, float, list[Finding]] | None = None

    @property
    def dump(self) -> Dump:
        with self._lock:
            if self._dump is None:
                self._dump = Dump(self.folder.parent, self.rank)
            return self._dump

    def _fresh(self, path: Path, key: str, make: Callable[[], T]) -> T:
        with self._lock:
            stamp = _stamp(path)
            known = self._kept.get(key)
            if known is None or known[0] != stamp:
                known = self._kept[key] = (stamp, make())
            found: T = known[1]
            return found

    @property
    def session(self) -> dict[str, Any]:
        return self._fresh(self.folder / fmt.SESSION, "session", lambda: Rank(self.folder).session)

    @property
    def rank(self) -> int:
        given = self.session.get("rank", self.name.removeprefix("rank").partition("-")[0])
        return rank_number(given)

    @property
    def state(self) -> str:
        known = Rank(self.folder)
        known.__dict__["session"] = self.session
        return known.state

    @property
    def sites(self) -> dict[int, Site]:
        return self._fresh(self.folder / fmt.SITES, "sites", lambda: Rank(self.folder).sites)

    @property
    def addresses(self) -> dict[str, Site]:
        return self._fresh(
            self.folder / fmt.SITES, "addresses", lambda: {site.address: site for site in self.sites.values()}
        )

    @property
    def hits(self) -> list[Hit]:
        return self._fresh(self.folder / fmt.HITS, "hits", lambda: Rank(self.folder).hits)

    @property
    def events(self) -> list[dict[str, Any]]:
        return self._fresh(self.folder / fmt.EVENTS, "events", lambda: Rank(self.folder).events)

    @property
    def facts(self) -> dict[str, Any]:
        return self._fresh(self.folder / fmt.FACTS, "facts", lambda: Rank(self.folder).facts)

    @property
    def values(self) -> list[Value]:
        return self._fresh(self.folder / fmt.VALUES, "values", lambda: Rank(self.folder).values)

    @property
    def findings(self) -> list[Finding]:
        """Those that were written; of a run that was never diagnosed, what the diagnosis says now."""
        path = self.folder / fmt.FINDINGS
        if path.exists():
            return self._fresh(path, "findings", lambda: Rank(self.folder).findings)
        return self._diagnose()

    @property
    def finding_count(self) -> int | None:
        """Without a diagnosis for it: None where none was made so far."""
        if (self.folder / fmt.FINDINGS).exists():
            return len(self.findings)
        return None if self._diagnosed is None else len(self._diagnosed[2])

    @property
    def seconds(self) -> float | None:
        """From its start to its end; None while it runs, and where it was killed."""
        known = Rank(self.folder)
        known.__dict__["session"] = self.session
        return known.seconds if known.closed else None

    def _diagnose(self) -> list[Finding]:
        from tensonde.diagnose.diagnose import diagnose
        from tensonde.store.reader import Recording

        with self._lock:
            stamp = (tuple(self._columns_stamp()), _stamp(self.folder / fmt.HITS), _stamp(self.folder / TRACES))
            known = self._diagnosed
            if known is None or (known[0] != stamp and time.monotonic() - known[1] > AGAIN_SECONDS):
                found = diagnose(Recording(self.folder.parent, {}, [Rank(self.folder)]))
                known = self._diagnosed = (stamp, time.monotonic(), found)
            return known[2]

    def _columns_stamp(self) -> list[Any]:
        return list(Rank(self.folder).digest_table.stamps().items())

    def graph_stamp(self) -> object:
        """Changes when a trace or a compiled graph was written."""
        return _stamp(self.folder / TRACES), _stamp(self.folder / GRAPHS)

    def trace_files(self) -> list[Path]:
        return numbered(self.folder / TRACES)

    def graphs(self) -> list[GraphRecord]:
        """Compiled graphs, those that can be read."""
        return self._fresh(self.folder / GRAPHS, "graphs", lambda: Rank(self.folder).graphs)

    def trace(self, path: Path) -> Trace | None:
        """None where it is damaged. A trace is never rewritten."""
        with self._lock:
            if path not in self._traces:
                try:
                    self._traces[path] = read_trace(path)
                except (OSError, ValueError):
                    return None
                while len(self._traces) > TRACES_KEPT:
                    del self._traces[next(iter(self._traces))]
            return self._traces[path]

    def segments(self) -> list[Segment]:
        with self._lock:
            return self._columns.segments()

    @property
    def last_step(self) -> int:
        """The last step that left a digest; -1 if none did."""
        found = [int(steps.max()) for segment in self.segments()[-2:] if len(steps := segment.column("step"))]
        return max(found, default=-1)

    def scalars(self) -> dict[str, tuple[Array, Array]]:
        """By name: steps and values."""
        table = Rank(self.folder).scalar_table
        with self._lock:
            stamp = tuple(table.stamps().items())
            known = self._kept.get("scalars")
            if known is None or known[0] != stamp:
                known = self._kept["scalars"] = (stamp, _by_name(table.read()))
            found: dict[str, tuple[Array, Array]] = known[1]
            return found


def _by_name(table: Any) -> dict[str, tuple[Array, Array]]:
    names = table["name"].combine_chunks().dictionary_encode()
    codes = np.asarray(names.indices)
    steps, values = np.asarray(table["step"]), np.asarray(table["value"])
    found = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        found[str(name)] = (steps[rows], values[rows])
    return found


def _stamp(path: Path) -> Any:
    try:
        known = path.stat()
        return known.st_size, known.st_mtime_ns, known.st_ino
    except OSError:
        return None
