"""All findings of a recording, the most likely root cause first."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import tensonde.diagnose.rules  # noqa: F401  registers them
from tensonde.diagnose.case import Case
from tensonde.diagnose.places import gathered
from tensonde.diagnose.rule import RULES, Rule, named
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
    makers: list[Rule] = []
    failed: list[tuple[Rule, Exception]] = []
    damage: list[Exception] = []
    for rank in recording.ranks:
        examination = Examination(Case(rank))
        for known in RULES:
            own = with_unseen_steps(examination.findings(known), rank)
            base = len(findings)
            findings += [f if f.caused_by is None else replace(f, caused_by=base + f.caused_by) for f in own]
            makers += [known] * len(own)
        failed += examination.failed
        damage += examination.case.damage
    _tell(recording, failed, damage)
    _link(findings, makers)
    numbered = sorted(enumerate(findings), key=lambda pair: (*_weight(pair[1]), pair[0]))
    place = {old: new for new, (old, _) in enumerate(numbered)}
    return gathered([f if f.caused_by is None else replace(f, caused_by=place[f.caused_by]) for _, f in numbered])


class Examination:
    """The rules on one case, each run once at most: not where one of its `unless` has found something."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.failed: list[tuple[Rule, Exception]] = []
        """A rule that fails costs its own findings, not those of the others."""
        self._found: dict[str, list[Finding]] = {}

    def findings(self, known: Rule) -> list[Finding]:
        if known.name not in self._found:
            silenced = any(self.findings(named(name)) for name in known.unless)
            self._found[known.name] = [] if silenced else self._checked(known)
        return self._found[known.name]

    def _checked(self, known: Rule) -> list[Finding]:
        try:
            return known.findings(self.case)
        except Exception as problem:
            if os.environ.get("TENSONDE_STRICT") == "1":
                raise
            self.failed.append((known, problem))
            return []


def _tell(recording: Recording, failed: list[tuple[Rule, Exception]], damage: list[Exception]) -> None:
    """Says in the log what could not be understood."""
    if damage and os.environ.get("TENSONDE_STRICT") == "1":
        raise damage[0]
    if damage:
        log.warning("%s", misunderstood(f"the facts that {recording.name} recorded", damage[0]))
    if failed:
        known, problem = failed[0]
        told = misunderstood(f"what {recording.name} recorded", problem)
        log.warning("%d rules failed, the first is %s: %s", len(failed), known.name, told)


_CHECKS = ("AssertionError", "ValueError", "RuntimeError", "FloatingPointError", "Exception", "ArithmeticError")


def _link(findings: list[Finding], makers: list[Rule]) -> None:
    """On each rank, the first finding whose rule `explains` others is the cause of those that follow from it."""
    for rank in {finding.rank for finding in findings}:
        origin = next(
            (k for k, f in enumerate(findings) if f.rank == rank and makers[k].explains and f.caused_by is None), None
        )
        if origin is None:
            continue
        explained = makers[origin].explains
        for k, finding in enumerate(findings):
            if finding.rank == rank and finding.rule in explained and _follows(finding, findings[origin]):
                findings[k] = replace(finding, caused_by=origin)


def _follows(finding: Finding, origin: Finding) -> bool:
    """Whether it can come of the origin: seen by Tensonde no earlier, or by a check of the script in the same step."""
    if finding.rule == "exception":
        return finding.evidence.get("type") in _CHECKS and finding.step == origin.step  # the script looked, and gave up
    if finding.severity == "info":
        return False
    later = origin.step is None or (finding.step is not None and finding.step >= origin.step)
    return finding.rule == "nonfinite" or later


def _weight(finding: Finding) -> tuple[int, int, int]:
    """What is to be read first: causes before what follows from them, errors before warnings, early before late."""
    group = 2 if finding.severity == "info" else 1 if finding.caused_by is not None else 0
    return group, _ORDER[finding.severity], finding.step if finding.step is not None else -1
