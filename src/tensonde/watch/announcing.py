"""What a hit says on the terminal while the training runs."""

from __future__ import annotations

from tensonde.model.watchpoint import Hit

RUNAWAY = "weight_runaway"
"""The condition that comes before the loss shows anything."""


def announcement(hit: Hit) -> str:
    if hit.condition != RUNAWAY:
        return f"hit: {hit.site} {hit.condition} at step {hit.moment.step} ({hit.moment.phase})"
    growth = grown(hit)
    return (
        f"step {hit.moment.step}: {hit.site.rpartition(':')[0]} grew by {growth:.0%} in 10 steps, ever faster, and the loss no longer "
        "falls: it may diverge soon"
    )


def grown(hit: Hit) -> float:
    """The part by which the norm of a weight that runs away has grown over ten steps."""
    return hit.actual["norm"] / hit.actual["prev(norm, 10)"] - 1
