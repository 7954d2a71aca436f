"""All findings of a recording, the most likely root cause first."""

from __future__ import annotations

from dataclasses import replace

from sonde.diagnose.exceptions import exception_findings
from sonde.diagnose.hits import hit_findings
from sonde.model.finding import Finding
from sonde.store.reader import Recording

_ORDER = {"error": 0, "warning": 1, "info": 2}


def diagnose(recording: Recording) -> list[Finding]:
    """Findings in order of severity, then of time; what a finding explains comes after it with `caused_by`."""
    findings = [finding for rank in recording.ranks for finding in [*exception_findings(rank), *hit_findings(rank)]]
    numbered = sorted(
        enumerate(findings),
        key=lambda pair: (_ORDER[pair[1].severity], pair[1].step if pair[1].step is not None else -1, pair[0]),
    )
    place = {old: new for new, (old, _) in enumerate(numbered)}
    return [
        finding if finding.caused_by is None else replace(finding, caused_by=place[finding.caused_by])
        for _, finding in numbered
    ]
