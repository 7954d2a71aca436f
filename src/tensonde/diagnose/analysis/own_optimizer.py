"""The line of an optimizer that the user wrote at which an update became infinite under a finite gradient."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.model.site import SourceLine


def dividing_line(case: Case, *, first: bool) -> tuple[SourceLine | None, str]:
    """The line, and what it does. `first`: it happened at the optimizer's first step. There a divisor `1 - b ** t` is 0
    if the step counts as 0; at any step a root without an eps can be; else the only division is it. None when none of
    that holds, or when there are several optimizers."""
    optimizers = case.stepping
    divisions = optimizers[0].divisions if len(optimizers) == 1 else []
    powers = [one for one in divisions if one.kind == "power"]
    roots = [one for one in divisions if one.kind == "root"]
    if first and powers:
        return powers[0].source, "the bias correction 1 - beta ** t is 0 in step 0: count the step before"
    if roots:
        return roots[0].source, "it divides by a root that can be 0: add eps to it"
    if len(divisions) == 1 and divisions[0].kind == "other":
        return divisions[0].source, "it divides by something that can be 0: add eps to it"
    return None, ""
