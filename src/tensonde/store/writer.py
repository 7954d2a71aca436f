"""The writing side of a recording: one rank's folder, filled while the training runs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from tensonde.errors import UsageError
from tensonde.model.finding import Finding
from tensonde.model.graph import GraphRecord
from tensonde.model.moment import Moment
from tensonde.model.site import Site
from tensonde.model.trace import Trace
from tensonde.model.watchpoint import Hit
from tensonde.store import bundles
from tensonde.store import format as fmt
from tensonde.store.bundles import Stored, write_bundle
from tensonde.store.codec import finding_out, hit_out, site_out
from tensonde.store.compactor import Compactor
from tensonde.store.files import JsonLines, dump_json, dump_lines, replace_file
from tensonde.store.graphs import write_graph
from tensonde.store.ipc import DIGEST_HEAD, SCALAR_HEAD, SegmentLog, digest_message, scalar_message
from tensonde.store.liveness import identity
from tensonde.store.thinning import Thinning
from tensonde.store.traces import write_trace
from tensonde.store.values import encode_value

SEGMENT_BYTES = 32 << 20
VALUE_BUDGET = 256 << 20
SEGMENTS = 32
"""At least, that a recording of its largest size has: they are thinned one or two at a time."""
SCALAR_SHARE = 8
"""One part in so many of the size is for scalars."""
SCALAR_BUFFER = 256
LEFT_BYTES = 256 << 20
"""Of full segments that wait as they are for the command which started the training: converting them here would load pyarrow (110 MB)."""

P = ParamSpec("P")
R = TypeVar("R")


class Listener(Protocol):
    """Receives what is written, in the writing thread, also when the disk is full. Never raises, and copies what it keeps."""

    def site(self, site: Site) -> None: ...

    def digests(self, rows: np.ndarray[Any, Any], first: int) -> None:
        """`first` is the place of the first row in the recording."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None: ...

    def hit(self, hit: Hit) -> None: ...

    def event(self, event: dict[str, Any]) -> None: ...


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _turn(
    method: Callable[Concatenate[RecordingWriter, P], R],
) -> Callable[Concatenate[RecordingWriter, P], R | None]:
    """One call at a time, and none in a forked child or after the close.

    The process is checked before the lock: in a child it may be held for ever, by a thread that was not
    forked.
    """

    @wraps(method)
    def call(self: RecordingWriter, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if os.getpid() != self._pid:
            return None
        with self._lock:
            return None if self._closed else method(self, *args, **kwargs)

    return call


class RecordingWriter:
    """Writes one rank's folder, which no other writer may have written to.

    Threads: any thread may call any method; they take turns. In a forked child every method does nothing,
    because the folder belongs to the parent.
    Ownership: everything given is copied or encoded before the call returns; the caller may reuse its
    buffers.
    Readability: when `digests`, `hit`, `event`, `value` or `flush` return, another process can read
    what was given, also after this one is killed. A `site` waits for the first row or hit that may be its own; `scalars` may wait for the next
    `digests`, or for SCALAR_BUFFER of them.
    Failure: OSError as it comes (disk full, folder deleted). What was written before stays readable, later
    calls try again from a clean state, and `close` works. Nothing is written after `close`; calls then do
    nothing.
    """

    def __init__(
        self,
        folder: Path,
        session_facts: Mapping[str, Any],
        *,
        value_budget: int = VALUE_BUDGET,
        segment_bytes: int = SEGMENT_BYTES,
        table_bytes: int = 0,
        compact: bool = True,
    ) -> None:
        """`session_facts`: rank, world_size, framework, framework_version, device, python and what else is
        known. `table_bytes`: what digests and scalars may take together, compressed; 0 is no limit (see `thinning`).
        Without `compact`, segments stay as they are for `compact_closed`, the last ones and the first LEFT_BYTES."""
        self.folder = Path(folder)
        if (self.folder / fmt.SESSION).exists():
            raise UsageError(f"{self.folder} already holds a recorded session; claim another folder for this one")
        self._lock = threading.RLock()  # reentrant: a signal handler may close while the same thread writes
        self._pid, self._closed = os.getpid(), False
        scalar_bytes = table_bytes // SCALAR_SHARE
        self._thinning = Thinning({fmt.DIGESTS: table_bytes - scalar_bytes, fmt.SCALARS: scalar_bytes})
        self._compactor = Compactor(self._thinning.after)
        segment_bytes = min(segment_bytes, max(table_bytes // SEGMENTS, 1 << 16)) if table_bytes else segment_bytes
        self._compact = compact
        self._left: list[Path] = []
        self._left_room = 0 if compact else min(LEFT_BYTES, table_bytes or LEFT_BYTES)
        self._finishing: list[Path] | None = None
        for name in (fmt.DIGESTS, fmt.SCALARS, fmt.VALUES):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._digests = SegmentLog(self.folder / fmt.DIGESTS, DIGEST_HEAD, limit=segment_bytes, retire=self._retire)
        self._scalars = SegmentLog(self.folder / fmt.SCALARS, SCALAR_HEAD, limit=segment_bytes, retire=self._retire)
        self.listener: Listener | None = None
        self._waiting: list[tuple[int, str, float]] = []
        self._rows = self._scalar_rows = self._value_count = 0
        self._sites = JsonLines(self.folder / fmt.SITES)
        self._new_sites: list[Site] = []
        self._hits = JsonLines(self.folder / fmt.HITS)
        self._events = JsonLines(self.folder / fmt.EVENTS)
        self._value_left, self._declined = value_budget, 0
        self._session = {
            **session_facts,
            "format": fmt.FORMAT_VERSION,
            "process": identity(),
            "started": now(),
            "closed": None,
        }
        self._write_session()

    @_turn
    def site(self, site: Site) -> None:
        """Make a site known, before its first digest. Given again with the same id, the later facts count."""
        if self.listener is not None:
            self.listener.site(site)
        self._new_sites.append(site)

    @_turn
    def digests(self, rows: np.ndarray[Any, Any]) -> None:
        """Add rows of dtype ROW in the order they happened, and any scalars that wait. ValueError: other
        rows."""
        if len(rows):
            first, self._rows = self._rows, self._rows + len(rows)
            if self.listener is not None:
                self.listener.digests(rows, first)
            self._flush_sites()
            self._digests.append(digest_message(rows, first))
        self._flush_scalars()

    @_turn
    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Note numbers of a step: loss, lr/0, step_seconds..."""
        if self.listener is not None:
            self.listener.scalars(step, values)
        self._waiting.extend((int(step), name, float(value)) for name, value in values.items())
        if len(self._waiting) >= SCALAR_BUFFER:
            self._flush_scalars()

    @_turn
    def hit(self, hit: Hit) -> None:
        """Note that a watchpoint matched."""
        if self.listener is not None:
            self.listener.hit(hit)
        self._flush_sites()
        self._hits.append(hit_out(hit))
        self._thinning.spare(hit.moment.step)

    @_turn
    def event(self, /, kind: str, **fields: Any) -> None:
        """Note that something happened: `kind`, the time, and fields that JSON can hold (others become
        text)."""
        entry = {"kind": kind, "time": now(), **fields}
        if self.listener is not None:
            self.listener.event(entry)
        self._events.append(entry)

    @_turn
    def findings(self, findings: Iterable[Finding]) -> None:
        """Replace the findings of this rank."""
        write_findings(self.folder, findings)

    @_turn
    def facts(self, facts: Mapping[str, Any]) -> None:
        """Replace what is known of the training beside tensors."""
        replace_file(self.folder / fmt.FACTS, dump_json(facts, indent=1) + b"\n")

    @_turn
    def trace(self, trace: Trace) -> None:
        """Add a step that was recorded op by op."""
        write_trace(self.folder, trace)
        self._thinning.spare(trace.step)

    @_turn
    def bundle(self, step: int, document: Mapping[str, Any], tensors: Iterable[Stored]) -> tuple[Path, int]:
        """Add a step as data, to be run again elsewhere. Its folder and size. Raises OSError."""
        self._thinning.spare(step)
        parent = self.folder / bundles.FOLDER
        names = (f"step{step}", *(f"step{step}-{k}" for k in range(2, 1000)))
        folder = next(parent / name for name in names if not (parent / name).exists())
        return folder, write_bundle(folder, document, tensors)

    @_turn
    def graph(self, graph: GraphRecord) -> None:
        """Add a compiled graph."""
        write_graph(self.folder, graph)

    @_turn
    def value(
        self, site: str, moment: Moment, content: bytes | memoryview, dtype: str, shape: tuple[int, ...]
    ) -> Path | None:
        """Keep a tensor: its little-endian bytes in C order, its dtype by name (bfloat16, float8_e4m3fn...).

        None when the budget does not allow it: the first time an event `values-declined` says so, and
        session.json counts them at the close. Raises ValueError when the bytes do not fit dtype and shape.
        """
        chunks = encode_value(site, moment, content, dtype, tuple(shape))
        size = sum(map(len, chunks))
        if size > self._value_left:
            self._declined += 1
            if self._declined == 1:
                self.event("values-declined", site=site, step=moment.step, left=self._value_left)
            return None
        path = self.folder / fmt.VALUES / f"{self._value_count:06d}{fmt.VALUE}"
        replace_file(path, *chunks)
        self._value_count += 1
        self._value_left -= size
        return path

    @property
    def rows(self) -> int:
        """Digests given so far."""
        return self._rows

    @property
    def session(self) -> dict[str, Any]:
        return dict(self._session)

    @_turn
    def flush(self) -> None:
        """Write what waits."""
        self._flush_sites()
        self._flush_scalars()

    @_turn
    def close(self, exit_facts: Mapping[str, Any] | None = None) -> None:
        """Write what waits, make every segment Parquet (if it is to), add `exit_facts` (exit, steps, overhead, coverage...)
        to session.json. Releases everything even when that fails, and then raises the first OSError."""
        failure: OSError | None = None
        for flush in (self._flush_sites, self._flush_scalars):
            try:
                flush()
            except OSError as error:
                failure = failure or error
        self._closed, self._finishing = True, []
        for log in (self._digests, self._scalars):
            log.rotate()
        for lines in (self._sites, self._hits, self._events):
            lines.close()
        self._compactor.finish(self._finishing if self._compact else [])
        self._session.update(exit_facts or {})
        self._session.update(closed=now(), rows=self._rows, values=self._value_count)
        self._session.update(values_declined=self._declined, problems=self._compactor.problems)
        try:
            self._write_session()
        except OSError as error:
            failure = failure or error
        if failure is not None:
            raise failure

    def _retire(self, path: Path) -> None:
        if self._finishing is not None:
            self._finishing.append(path)
            return
        self._left.append(path)
        with contextlib.suppress(OSError):  # it may be gone; the compactor tells
            self._left_room -= path.stat().st_size
        if self._left_room < 0 or self._compact:  # from now on, each is converted when it is full
            self._left_room, left, self._left = 0, self._left, []
            for one in left:
                self._compactor.add(one)

    def _flush_sites(self) -> None:
        if self._new_sites:
            self._sites.append_lines(dump_lines(map(site_out, self._new_sites)))
            self._new_sites.clear()

    def _flush_scalars(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            first, self._scalar_rows = self._scalar_rows, self._scalar_rows + len(waiting)
            self._scalars.append(scalar_message(waiting, first))

    def _write_session(self) -> None:
        replace_file(self.folder / fmt.SESSION, dump_json(self._session, indent=2) + b"\n")


def write_findings(folder: Path, findings: Iterable[Finding]) -> None:
    """Replace the findings in a rank's folder, atomically; also for a recording made long ago. Raises
    OSError."""
    entries = [finding_out(finding) for finding in findings]
    replace_file(folder / fmt.FINDINGS, dump_json(entries, indent=2) + b"\n")
