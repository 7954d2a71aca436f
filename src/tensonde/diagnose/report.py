"""The report: what a run found, as JSON for scripts (schema 1, see docs/report.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tensonde.model.finding import Finding
from tensonde.program.lines import to_json
from tensonde.store.codec import finding_out
from tensonde.store.reader import Rank, Recording
from tensonde.version import __version__

SCHEMA = 1


def report(recording: Recording, findings: Sequence[Finding], *, exit_code: int | None) -> dict[str, Any]:
    ranks = recording.ranks
    sessions = [rank.session for rank in ranks]
    first = sessions[0] if sessions else {}
    exception = next((s["exit"]["exception"] for s in sessions if (s.get("exit") or {}).get("exception")), None)
    overhead = first.get("overhead") or {}
    return {
        "tensonde": __version__,
        "schema": SCHEMA,
        "run": {
            "id": recording.manifest.get("id", recording.name),
            "script": recording.manifest.get("script", ""),
            "framework": first.get("framework"),
            "ranks": len(ranks),
            "recording": str(recording.path),
        },
        "exit": {"code": exit_code, "exception": exception, "ended_by": ended_by(ranks)},
        "steps": first.get("steps"),
        "overhead": {
            "ratio": overhead.get("ratio"),
            "uncertainty": overhead.get("uncertainty"),
            "budget": overhead.get("budget"),
            "levels": overhead.get("levels"),
            "experiments_seconds": overhead.get("experiments_seconds"),
        },
        "coverage": first.get("coverage"),
        "health": _health(recording) if ranks else [],
        "findings": [finding_out(finding) for finding in findings],
    }


def _health(recording: Recording) -> list[dict[str, Any]]:
    from tensonde.diagnose.analysis.health import (
        health_of,
    )  # with all that is known of facts, which a run without a training has none of

    return [asdict(row) for row in health_of(recording)]


def ended_by(ranks: Sequence[Rank]) -> dict[str, Any] | None:
    """What ended the first process that did not come to the end of its program, and where it was."""
    for rank in ranks:
        ending = rank.ending
        if ending is not None:
            return {
                "what": ending.how,
                "signal": ending.signal or None,
                "rank": rank.rank,
                "step": ending.step,
                "last_module": ending.module or None,
                "source": to_json(ending.source),
                "stack": [str(frame) for frame in ending.stack],
            }
    return None
