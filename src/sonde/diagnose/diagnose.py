"""All findings of a recording, the most likely root cause first."""

from __future__ import annotations

from dataclasses import replace

import sonde.diagnose.rules  # noqa: F401  registers them
from sonde.diagnose.rule import RULES, Case
from sonde.model.finding import Finding
from sonde.store.reader import Recording

_ORDER = {"error": 0, "warning": 1, "info": 2}


def diagnose(recording: Recording) -> list[Finding]:
    """Findings in order of severity, then of time; what a finding explains comes after it with `caused_by`.

    A rule gives `caused_by` as an index into its own findings.
    """
    findings: list[Finding] = []
    for rank in recording.ranks:
        case = Case(rank)
        for known in RULES:
            own = list(known.check(case))
            base = len(findings)
            findings += [f if f.caused_by is None else replace(f, caused_by=base + f.caused_by) for f in own]
    numbered = sorted(
        enumerate(findings),
        key=lambda pair: (_ORDER[pair[1].severity], pair[1].step if pair[1].step is not None else -1, pair[0]),
    )
    place = {old: new for new, (old, _) in enumerate(numbered)}
    return [f if f.caused_by is None else replace(f, caused_by=place[f.caused_by]) for _, f in numbered]
