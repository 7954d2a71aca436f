"""Steps that nobody looked at before a value that is not finite was seen: a finding must not claim to know better."""

from __future__ import annotations

from dataclasses import replace

from tensonde.model.finding import Finding
from tensonde.store.reader import Rank

_CONCERNED = ("nonfinite", "nan-origin", "nan-in-data", "nan-in-weights", "nan-in-optimizer", "divergence")


def with_unseen_steps(findings: list[Finding], rank: Rank) -> list[Finding]:
    """The findings of one rank; those about the first value that was not finite say which steps were not looked at before."""
    event = next((event for event in rank.events if event.get("kind") == "unseen"), None)
    if event is None:
        return findings
    first, last, step = int(event["first"]), int(event["last"]), int(event["step"])
    steps = f"Step {first} was" if first == last else f"Steps {first} to {last} were"
    note = f"{steps} not looked at, because steps this short leave no time for that: it began there, or in step {step}."
    told = f"{first}" if first == last else f"{first} to {last}"
    return [
        replace(
            finding,
            title=finding.title.replace(" first appears ", " is first seen "),
            advice=f"{finding.advice} {note}",
            evidence={**finding.evidence, "not_looked_at": told},
        )
        if finding.rule in _CONCERNED and finding.step is not None and first <= finding.step <= step + 1
        else finding
        for finding in findings
    ]
