"""Exceptions of numpy arrays that torch cannot take: the line that made them so."""

from __future__ import annotations

from tensonde.diagnose.exceptions import Cause, Event, code, family, message


@family("negative-strides")
def negative_strides(event: Event) -> Cause | None:
    """Flipping a numpy array makes a view that goes backwards in memory, which is impossible for a tensor. The
    finding names the line that flips it.
    """
    found = event.get("flipped")
    if "stride" not in message(event) or not found:
        return None
    return Cause(
        title=f"{code(found['line'])} makes a view with negative strides, which torch cannot take",
        advice="Copy it where it is flipped: .copy() (or np.ascontiguousarray).",
        line=found["line"],
        evidence={"strides": found["strides"]} if found.get("strides") else {},
        confidence=0.93,
    )
