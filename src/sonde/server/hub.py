"""The hub itself: recordings and live sessions as one list of runs."""

from __future__ import annotations

from typing import Any

from sonde.server.library import Library, RecordedRun
from sonde.server.place import Place
from sonde.server.recorded import RecordedRank
from sonde.server.refusals import NotFound

Json = dict[str, Any]


class Hub:
    """Any thread, except where it says otherwise."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def runs(self) -> list[Json]:
        """Newest first."""
        found = [recorded_run(id, run) for id, run in self.library.runs().items()]
        return sorted(found, key=lambda run: run["started"] or "", reverse=True)

    def place(self, run: str, rank: str) -> Place:
        """Raises NotFound."""
        found = self.library.run(run)
        if found is None:
            raise NotFound(f"there is no run {run!r} here; GET /api/runs lists them.")
        known = found.ranks
        if rank not in known:
            raise NotFound(f"the run {run} has no rank {rank!r}; it has {', '.join(known) or 'none so far'}.")
        return Place(run, rank, known[rank])


def recorded_run(id: str, run: RecordedRun) -> Json:
    manifest, ranks = run.manifest, run.ranks
    states = [rank_state(rank) for rank in ranks.values()]
    kinds = {entry["state"] for entry in states}
    state = (
        "live"
        if kinds & {"running", "stopped"}
        else "killed"
        if kinds & {"killed", "lost"}
        else "finished"
        if kinds
        else "empty"
    )
    first = next(iter(ranks.values())).session if ranks else {}
    return {
        "id": id, "name": run.path.name, "script": manifest.get("script"), "framework": first.get("framework"),
        "started": manifest.get("started"), "state": state, "path": str(run.path), "ranks": states,
    }  # fmt: skip


def rank_state(rank: RecordedRank) -> Json:
    """As far as the recording tells."""
    session = rank.session
    state = {"live": "running"}.get(rank.state, rank.state)
    steps = session.get("steps")
    overhead = session.get("overhead") or {}
    ratio = overhead.get("ratio")
    last = steps - 1 if isinstance(steps, int) else rank.last_step
    findings = len(rank.findings) if (rank.folder / "findings.json").exists() else 0
    return {
        "name": rank.name, "rank": rank.rank, "live": rank.state == "live", "connected": False, "state": state,
        "stop": None, "step": max(last, 0), "steps": last + 1, "epoch": None, "phase": None,
        "steps_per_second": _speed(rank), "overhead": ratio - 1 if isinstance(ratio, int | float) else None,
        "budget": overhead.get("budget", (session.get("options") or {}).get("budget")),
        "device": session.get("device"), "framework": session.get("framework"), "host": session.get("host"),
        "pid": session.get("pid"), "hits": len(rank.hits), "findings": findings, "dropped": 0,
        "last_step_at": session.get("closed"), "capabilities": ["read"],
    }  # fmt: skip


def _speed(rank: RecordedRank) -> float | None:
    """Of the last hundred steps."""
    seconds = rank.scalars().get("step_seconds")
    if seconds is None or not len(seconds[1]):
        return None
    mean = float(seconds[1][-100:].mean())
    return 1 / mean if mean > 0 else None
