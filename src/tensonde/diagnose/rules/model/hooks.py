"""Gradient hooks that were placed with `tensonde.hook` and its kin, and are still there."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine


@rule("gradient-hook", severity="info", phase="backward")
def hooks(case: Case) -> list[Finding]:
    """A gradient hook was placed with Tensonde and not removed. The finding lists each line once, and whether it
    changes gradients.
    """
    placed: dict[tuple[str, int], dict[str, object]] = {}
    for event in case.events:
        if event.get("kind") not in ("hook", "hook_removed"):
            continue
        key = (str(event.get("file", "")), int(event.get("line", 0)))
        if event["kind"] == "hook":
            placed[key] = event
        else:
            placed.pop(key, None)
    return [
        case.finding(
            f"A gradient hook on {event.get('on')} "
            + ("changes the gradients" if event.get("changes") else "looks on")
            + f": {event.get('function')}",
            "Remove it with its handle (`handle.remove()`) when it is no longer needed.",
            step=None,
            source=SourceLine(*key) if key[0] else None,
            evidence={"changes": bool(event.get("changes")), "kind": str(event.get("kind_of_hook"))},
            confidence=1.0,
        )
        for key, event in placed.items()
    ]
