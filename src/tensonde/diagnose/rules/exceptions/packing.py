"""Exceptions of packed sequences: the line that unpacks them too short."""

from __future__ import annotations

from tensonde.diagnose.exceptions import Cause, Event, family


@family("unpacked-too-short")
def unpacked_too_short(event: Event) -> Cause | None:
    """pad_packed_sequence pads to the longest sequence of the batch, not to the length that the batch had before it
    was packed. So beside masks and labels of the full length, the result is too short in every batch without a
    full-length sequence. Reported if the unpacked result has the smaller of the two sizes that do not fit.
    """
    found = event.get("unpacked")
    if not found:
        return None
    return Cause(
        title=f"pad_packed_sequence gives the {found['length']} steps of the batch's longest sequence, where "
        f"{found['wanted']} are needed",
        advice="Give it total_length=x.size(1) (x is what was packed), or cut masks and labels to the longest sequence.",
        line=found["line"],
        op="pad_packed_sequence",
        evidence={"length": found["length"], "wanted": found["wanted"]},
        confidence=0.93,
    )
