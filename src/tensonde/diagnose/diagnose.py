"""All findings of a recording, the most likely root cause first."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import replace

import tensonde.diagnose.rules  # noqa: F401  registers them
from tensonde.diagnose.analysis.trials import tried
from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import LAUNCHERS
from tensonde.diagnose.places import gathered
from tensonde.diagnose.rule import RULES, WORLD_RULES, Rule, named
from tensonde.diagnose.unseen import with_unseen_steps
from tensonde.diagnose.world import World, world_of
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
    cases = [Case(rank) for rank in recording.ranks]
    world = world_of(cases)
    subjects: list[tuple[Case | World, list[Rule]]] = [(case, RULES) for case in cases]
    if world is not None:
        subjects.append((world, WORLD_RULES))
    for subject, rules in subjects:
        examination = Examination(subject)
        for known in rules:
            own = examination.findings(known)
            if isinstance(subject, Case):
                own = [tried(subject, finding) for finding in with_unseen_steps(own, subject.rank)]
            base = len(findings)
            findings += [f if f.caused_by is None else replace(f, caused_by=base + f.caused_by) for f in own]
            makers += [known] * len(own)
        failed += examination.failed
    _tell(recording, failed, [problem for case in cases for problem in case.damage])
    _link(findings, makers)
    if world is not None:
        _link_ranks(findings, makers)
        _link_failures(findings, world)
    numbered = sorted(enumerate(findings), key=lambda pair: (*_weight(pair[1]), pair[0]))
    place = {old: new for new, (old, _) in enumerate(numbered)}
    return gathered([f if f.caused_by is None else replace(f, caused_by=place[f.caused_by]) for _, f in numbered])


class Examination:
    """The rules on one case or world, each run once at most: not where one of its `unless` has found something."""

    def __init__(self, subject: Case | World) -> None:
        self._subject = subject
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
            return known.findings(self._subject)
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


_SPREAD = ("nan-origin", "nan-in-data", "nan-in-optimizer", "nonfinite", "divergence", "exploding-gradients")
"""What one rank may have from another, by the gradients that they share."""
_NUMBERS = re.compile(r"\d+")
_PHASES = ("init", "data", "forward", "backward", "optimizer")


def _link_ranks(findings: list[Finding], makers: list[Rule]) -> None:
    """What a rule about all ranks explains, it explains on every rank. Ranks that raise the same exception raise it for the
    same reason: one rank's facts may explain it where another ended before it wrote its own. Where several ranks have
    values that are not finite, the first of them in time is the cause: gradients carry them on."""
    for k, maker in enumerate(makers):
        for j, finding in enumerate(findings if maker in WORLD_RULES else []):
            if finding.rule in maker.explains and finding.caused_by is None:
                findings[j] = replace(finding, caused_by=k)
    thrown = [(k, _NUMBERS.sub("#", f.title)) for k, f in enumerate(findings) if f.rule == "exception"]
    causes = {title: cause for k, title in thrown if (cause := findings[k].caused_by) is not None}
    for k, title in thrown:
        if findings[k].caused_by is None and title in causes:
            findings[k] = replace(findings[k], caused_by=causes[title])
    roots = [
        k
        for k, finding in enumerate(findings)
        if finding.caused_by is None and finding.step is not None and finding.rule in _SPREAD
    ]
    if len({findings[k].rank for k in roots}) < 2:
        return
    origin = min(roots, key=lambda k: (findings[k].step or 0, _PHASES.index(findings[k].phase or "forward")))
    for k in roots:
        if findings[k].rank != findings[origin].rank:
            findings[k] = replace(findings[k], caused_by=origin)


_FATAL = ("ranks-stuck", "uneven-batches", "rank-killed", "collectives-differ", "exception", "crash")


def _link_failures(findings: list[Finding], world: World) -> None:
    """A rank that fails takes the others with it: their collectives fail, and so does the process that started them."""
    alone = [one.rank for one in world.standings if one.failed and one.inside is None]
    waiting = {one.rank for one in world.standings if one.inside is not None} if alone else set()

    def follows(finding: Finding) -> bool:
        launcher = finding.evidence.get("type") in LAUNCHERS
        return finding.rule in ("exception", "crash") and (launcher or finding.rank in waiting)

    fatal = [k for k, f in enumerate(findings) if f.rule in _FATAL and f.severity == "error" and not follows(f)]
    if not fatal:
        return
    origin = min(fatal, key=lambda k: (findings[k].rank not in alone, _FATAL.index(findings[k].rule)))
    cause = findings[origin].caused_by
    for k, finding in enumerate(findings):
        if follows(finding):
            findings[k] = replace(finding, caused_by=origin if cause is None else cause)


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
