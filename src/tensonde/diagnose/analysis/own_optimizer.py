"""The line of an optimizer that the user wrote at which an update became infinite under a finite gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.case import Case
from tensonde.diagnose.told import place
from tensonde.model.site import SourceLine


def dividing_line(case: Case, *, first: bool) -> tuple[SourceLine | None, str]:
    """The line, and what it does. `first`: it happened at the optimizer's first step. There a divisor `1 - b ** t` is 0
    if the step counts as 0; at any step a root without an eps can be; else the only division is it. None when none of
    that holds, or when there are several optimizers."""
    optimizers = [o for o in case.facts.get("optimizers") or () if o.get("steps")]
    divisions: list[Mapping[str, Any]] = (optimizers[0].get("divisions") or []) if len(optimizers) == 1 else []
    powers = [one for one in divisions if one["kind"] == "power"]
    roots = [one for one in divisions if one["kind"] == "root"]
    if first and powers:
        return place(powers[0]), "the bias correction 1 - beta ** t is 0 in a step that counts as 0: count it before"
    if roots:
        return place(roots[0]), "it divides by a root that can be 0: add eps to it"
    if len(divisions) == 1 and divisions[0]["kind"] == "other":
        return place(divisions[0]), "it divides by what can be 0: add eps to it"
    return None, ""
