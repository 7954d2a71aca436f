"""Ranks that hold one model and do not do the same with it."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.courses import Parting, first_parting, told
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World, same, same_in_step
from tensonde.model.finding import Finding


@world_rule(
    "ranks-part-ways",
    severity="error",
    explains=("replicas-drift", "ranks-stuck", "collectives-differ", "exception", "crash", "learning-rates-differ"),
)
def part_ways(world: World) -> Iterator[Finding]:
    """The ranks hold one model, and in some step one of them runs backward, steps, schedules, freezes, or passes
    parameters to the optimizer, while another does not. Tensonde records what they do with its lines, step by step,
    and compares: the finding names the first difference, and the condition or loop that decides it.

    Reported if a rank fails or waits, or if weights have diverged since. If a rank has no more batches, or waits,
    that is `ranks-stuck`.
    """
    known = all(case.facts.course.stretches for case in world.cases)  # else a rank was killed
    if any(one.joined for one in world.replicas) or (
        known and not (world.replicas or world.reduced or world.exchanging or world.sharded)
    ):
        return
    parting = first_parting(world)
    if parting is None or not _hurts(world):
        return
    optimizer = next(iter(world.first.stepping), None)
    closure = optimizer is not None and optimizer.closure and _in_closure(parting)
    yield world.first.finding(
        f"The ranks diverge in step {parting.step}: {told(parting)}",
        "The function that the optimizer calls must give the same value on all ranks: average the loss over them (dist.all_reduce) before it is returned, so "
        "that every rank searches alike."
        if closure
        else "The decision must be the same on all ranks: decide on one rank and send it (dist.broadcast), or decide by a value of all ranks (dist.all_reduce).",
        step=parting.step,
        source=optimizer.step_line if closure and optimizer is not None else parting.decided,
        evidence={
            "ranks": list(parting.ranks),
            "lines": [str(deed.line) if deed is not None else "" for deed in parting.deeds],
        },
        confidence=0.9,
    )


def _hurts(world: World) -> bool:
    """A rank has failed or waits, or parameters that all ranks had alike are no longer so. Shards that are stepped apart are parts
    of a model that never was. A rank that trains something of its own beside hurts nobody."""
    if world.sharded or any(one.failed or one.inside is not None or one.signal for one in world.standings):
        return True
    for name, records in world.weights.items():
        last = [rows for _, rows in world.common(f"{name}:value")][-1:]
        if same([one.before for one in records]) and last and not same_in_step(last[0]):
            return True
    return False


def _in_closure(parting: Parting) -> bool:
    """One searches longer than the other."""
    return any(deed is None or deed.what == "step" for deed in parting.deeds) and any(
        deed is not None and deed.what == "backward" for deed in parting.deeds
    )
