"""Findings from watchpoint hits.

A hit of the recommended set is a problem (that set is silent on healthy training); a hit of the user's own
watchpoint is what the user asked to be told, so it is `info`. Among NaN and Inf, the first site in execution
order is the origin; what comes after it in time follows from it. A second site with the same condition in
the same step is one problem, not two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding, Severity
from tensonde.model.site import Kind, Role, Site
from tensonde.model.watchpoint import Hit
from tensonde.watch.announcing import RUNAWAY

_NONFINITE = ("nan", "inf", "pos_inf", "neg_inf", "nonfinite")

_AGAIN = "The steps are so short that the budget leaves no time to observe ops: run it again with --budget off to get the op and its line."


@rule("watchpoint", severity="warning")
def hit_findings(case: Case) -> list[Finding]:
    """A watchpoint hit: an error for NaN and Inf, a warning for the rest of the recommended set, info for your own."""
    rank, sites = case.rank, case.sites
    own = {int(point["id"]) for point in rank.session.get("watchpoints", ()) if point.get("origin") == "user"}
    levels = (rank.session.get("overhead") or {}).get("levels") or {}
    rested = bool(levels.get("rest"))
    findings: list[Finding] = []
    origin: int | None = None
    seen: set[tuple[int, int]] = set()
    for hit in rank.hits:
        group = (hit.watchpoint, hit.moment.step)
        if group in seen or (hit.condition == RUNAWAY and hit.watchpoint not in own):  # `weight-runaway` tells
            continue
        seen.add(group)
        nonfinite = any(hit.actual.get(field, 0) > 0 for field in _NONFINITE)
        severity: Severity = "info" if hit.watchpoint in own else "error" if nonfinite else "warning"
        finding = _finding(case, hit, sites.get(hit.site), severity, nonfinite, origin)
        if nonfinite and origin is None and rested:
            finding = replace(finding, advice=f"{finding.advice} {_AGAIN}")
        findings.append(finding)
        if origin is None and nonfinite and severity == "error":
            origin = len(findings) - 1
    return findings


def _finding(
    case: Case, hit: Hit, site: Site | None, severity: Severity, nonfinite: bool, origin: int | None
) -> Finding:
    what = _what(hit.actual) if nonfinite else hit.condition
    first = "first " if nonfinite and origin is None else ""
    return case.finding(
        f"{what} {first}{'appears' if nonfinite else 'holds'} {_where(hit, site)}",
        _advice(site, nonfinite),
        rule="nonfinite" if nonfinite else "watchpoint",
        severity=severity,
        step=hit.moment.step,
        phase=str(hit.moment.phase),
        site=hit.site,
        op=site.type if site is not None and site.kind is Kind.OP else None,
        source=site.source if site is not None else None,
        evidence={name: value for name, value in hit.actual.items() if "(" not in name},
        confidence=0.6 if nonfinite else 0.5,
        caused_by=origin,
    )


def _what(actual: Mapping[str, float]) -> str:
    if actual.get("nan", 0) > 0:
        return "NaN"
    return "NaN or Inf" if "nonfinite" in actual else "Inf"


def _where(hit: Hit, site: Site | None) -> str:
    if site is None:
        return f"at {hit.site}"
    kind = f" ({site.type})" if site.type else ""
    return {
        Role.OUT: f"in the output of {site.name}{kind}",
        Role.GRAD: f"in the gradient of {site.name}{kind}",
        Role.VALUE: "in the loss" if site.kind is Kind.LOSS else f"in {site.name}{kind}",
    }.get(site.role, f"at {hit.site}{kind}")


def _advice(site: Site | None, nonfinite: bool) -> str:
    if not nonfinite:
        return "Look at this site over the steps: tensonde show RECORDING SITE."
    if site is not None and site.kind is Kind.PARAMETER and site.role is Role.VALUE:
        return "The optimizer wrote it: look at the gradient and the learning rate of the step before."
    if site is not None and site.role is Role.GRAD:
        within = "in this module's forward, and " if site.kind is Kind.PARAMETER else ""
        return f"The forward pass was finite here: look for sqrt, log, division or norm at 0 {within}in what is computed from its output."
    return "Look at this module's forward for log, division, exp or sqrt out of range, and at its inputs; `tensonde debug` stops there."
