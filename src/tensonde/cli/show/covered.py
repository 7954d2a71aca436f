"""What was not watched, said once, and only where a user can do something about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.told import some
from tensonde.store.format import DIGESTS, SCALARS

_NOT_RUN = "was never called"
"""No gap: a module that did not run had nothing to be watched."""


def modules_line(coverage: Mapping[str, Any]) -> str:
    """`12/12 modules`: of those that ran; "" where none is known."""
    watched = coverage.get("modules_watched")
    if not isinstance(watched, int) or not coverage.get("modules"):
        return ""
    missed = sum(len(names) for names in gaps(coverage).values())
    return f"{watched}/{watched + missed} modules" if watched else ""


def coverage_notes(session: Mapping[str, Any]) -> list[str]:
    """A line for each reason why something was not watched; mostly none."""
    coverage = session.get("coverage") or {}
    notes = [f"not watched: {some(names)} ({why})" for why, names in gaps(coverage).items()]
    if coverage.get("modules") and coverage.get("modules_watched") == 0 and not notes and _looked(session):
        notes.append("no module was seen running: a model is watched when it is called as model(x)")
    failures = session.get("failures") or {}
    if isinstance(failures, dict) and failures:
        notes.append(f"coverage was lost: Tensonde failed in {some(map(str, failures))}; the log has the details")
    return notes


def thinned_note(thinned: Mapping[str, int]) -> str:
    """What a long recording no longer has, by `Rank.thinned`; "" where it has all."""
    words = {DIGESTS: "statistics", SCALARS: "scalars"}
    told = " and ".join(f"the {words.get(table, table)} of 1 in {n}" for table, n in thinned.items())
    return f"of its oldest steps, the recording keeps {told} (--keep gives it more room)" if told else ""


def gaps(coverage: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names that were not watched, by reason."""
    found: dict[str, list[str]] = {}
    told = coverage.get("not_watched")
    for name, why in (told if isinstance(told, dict) else {}).items():
        if why != _NOT_RUN:
            found.setdefault(str(why), []).append(str(name))
    return found


def _looked(session: Mapping[str, Any]) -> bool:
    """Whether modules were looked at in any step."""
    levels = (session.get("overhead") or {}).get("levels") or {}
    return bool(levels.get("full") or levels.get("watched"))
