"""Two recordings compared: in threads of their own, a few at a time, and once for as long as their files stay the same."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tensonde.compare.differences import Difference, spread
from tensonde.compare.judge import judge
from tensonde.compare.side import side_of
from tensonde.errors import UsageError
from tensonde.server.numbers import number
from tensonde.server.place import Place
from tensonde.server.recorded import RecordedRank
from tensonde.server.refusals import NotNow
from tensonde.store.format import FACTS
from tensonde.store.reader import Rank
from tensonde.store.traces import FOLDER as TRACES

Json = dict[str, Any]
AT_ONCE = 2
KEPT = 16


class Comparisons:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tensonde-compare")
        self._kept: dict[Any, Future[Json]] = {}

    def of(self, a: Place, b: Place) -> Future[Json]:
        """Raises NotNow where a recording cannot be read; the future raises UsageError where the two cannot be compared."""
        one, other = _recorded(a), _recorded(b)
        key = (_stamp(one), _stamp(other))
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
                found = self._work.submit(compared, one, other)
            self._kept[key] = found  # the last one used is the last one dropped
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
            return found


def compared(one: RecordedRank, other: RecordedRank) -> Json:
    a, b = (side_of(Rank(rank.folder), _label(rank, beside)) for rank, beside in ((one, other), (other, one)))
    outcome = judge(a, b)
    if outcome.verdict.verdict == "incomparable":
        raise UsageError(outcome.verdict.notes[0])
    found = spread(a, b, outcome)
    return {
        **outcome.verdict.document(),
        "step": found.step,
        "graphs": {"a": _graph(one, found.step), "b": _graph(other, found.step)},
        "differences": _columns(found.rows),
    }


def _columns(rows: list[Difference]) -> Json:
    return {
        "a": [row.a for row in rows],
        "b": [row.b for row in rows],
        "phase": [row.phase for row in rows],
        "status": [row.status for row in rows],
        "rel_l2": [_known(row.found.relative) if row.found is not None else None for row in rows],
        "max_abs": [_known(row.found.max_abs) if row.found is not None else None for row in rows],
        "cosine": [_known(row.found.cosine) if row.found is not None else None for row in rows],
    }


def _known(value: float) -> float | str | None:
    """A figure that is NaN was not to be had."""
    return None if math.isnan(value) else number(value)


def _graph(rank: RecordedRank, step: int) -> str:
    """The graph's name for the trace that was compared."""
    for k, path in enumerate(rank.trace_files()):
        trace = rank.trace(path)
        if trace is not None and trace.step == step and trace.reason in ("first", "following"):
            return f"trace:{k}"
    return "module"


def _label(rank: RecordedRank, beside: RecordedRank) -> str:
    run = rank.folder.parent.name
    return f"{run}/{rank.name}" if beside.folder.parent.name == run else run


def _recorded(place: Place) -> RecordedRank:
    if place.recorded is None:
        raise NotNow(
            f"the recording of {place.run} cannot be read here; it can be compared on the machine where it is: "
            "tensonde compare A B."
        )
    return place.recorded


def _stamp(rank: RecordedRank) -> Any:
    times = []
    for name in (FACTS, TRACES):
        try:
            times.append((rank.folder / name).stat().st_mtime_ns)
        except OSError:
            times.append(0)
    tables = Rank(rank.folder)
    return (
        rank.folder, tuple(times), tuple(tables.scalar_table.stamps().items()), tuple(tables.digest_table.stamps().items())
    )  # fmt: skip
