"""All findings of a recording, the most likely root cause first."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import tensonde.diagnose.rules  # noqa: F401  registers them
from tensonde.diagnose.case import Case
from tensonde.diagnose.places import gathered
from tensonde.diagnose.rule import RULES, Rule
from tensonde.diagnose.unseen import with_unseen_steps
from tensonde.model.finding import Finding
from tensonde.store.damage import misunderstood
from tensonde.store.reader import Recording

log = logging.getLogger("tensonde.diagnose")

_ORDER = {"error": 0, "warning": 1, "info": 2}


def diagnose(recording: Recording) -> list[Finding]:
    """Findings in order of severity, then of time; what a finding explains comes after it with `caused_by`.

    A rule gives `caused_by` as an index into its own findings.
    """
    findings: list[Finding] = []
    failed: list[tuple[Rule, Exception]] = []
    damage: list[Exception] = []
    for rank in recording.ranks:
        case = Case(rank)
        damage += case.damage
        for known in RULES:
            own = with_unseen_steps(_checked(known, case, failed), rank)
            base = len(findings)
            findings += [f if f.caused_by is None else replace(f, caused_by=base + f.caused_by) for f in own]
    if damage and os.environ.get("TENSONDE_STRICT") == "1":
        raise damage[0]
    if damage:
        log.warning("%s", misunderstood(f"the facts that {recording.name} recorded", damage[0]))
    if failed:
        known, problem = failed[0]
        told = misunderstood(f"what {recording.name} recorded", problem)
        log.warning("%d rules failed, the first is %s: %s", len(failed), known.name, told)
    _link(findings)
    numbered = sorted(enumerate(findings), key=lambda pair: (*_weight(pair[1]), pair[0]))
    place = {old: new for new, (old, _) in enumerate(numbered)}
    return gathered([f if f.caused_by is None else replace(f, caused_by=place[f.caused_by]) for _, f in numbered])


def _checked(known: Rule, case: Case, failed: list[tuple[Rule, Exception]]) -> list[Finding]:
    """A rule that fails costs its own findings, not those of the others."""
    try:
        return known.findings(case)
    except Exception as problem:
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise
        failed.append((known, problem))
        return []


_ORIGINS = (
    "batch-out-of-scale", "divergence", "exploding-gradients", "lbfgs-without-line-search", "nan-in-data", "nan-in-optimizer",
    "nan-in-weights", "nan-origin",
)  # fmt: skip


_CHECKS = ("AssertionError", "ValueError", "RuntimeError", "FloatingPointError", "Exception", "ArithmeticError")


def _link(findings: list[Finding]) -> None:
    """Where the origin of NaN is known, what a watchpoint saw of it follows from that."""
    for rank in {finding.rank for finding in findings}:
        origin = next(
            (k for k, f in enumerate(findings) if f.rank == rank and f.rule in _ORIGINS and f.caused_by is None), None
        )
        if origin is None:
            continue
        for k, finding in enumerate(findings):
            checked = finding.rule == "exception" and finding.evidence.get("type") in _CHECKS
            if finding.rank == rank and checked and finding.step == findings[origin].step:
                findings[k] = replace(finding, caused_by=origin)  # the script looked, and gave up
            elif finding.rank == rank and finding.rule in ("nonfinite", "watchpoint") and finding.severity != "info":
                since = findings[origin].step
                if finding.rule == "nonfinite" or since is None or (finding.step is not None and finding.step >= since):
                    findings[k] = replace(finding, caused_by=origin)


def _weight(finding: Finding) -> tuple[int, int, int]:
    """What is to be read first: causes before what follows from them, errors before warnings, early before late."""
    group = 2 if finding.severity == "info" else 1 if finding.caused_by is not None else 0
    return group, _ORDER[finding.severity], finding.step if finding.step is not None else -1
