"""Collectives that the ranks do not call alike. Where nothing hangs, tensors of one call meet those of another."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine
from tensonde.store.collectives import Call
from tensonde.store.standing import PAIRS, signature


@world_rule("collectives-differ", severity="error", explains=("replicas-drift", "exception", "crash"))
def collectives_differ(world: World) -> Iterator[Finding]:
    """The calls of a group that all ranks belong to are compared one by one: at the same number, two ranks call
    different collectives, or the same one with a different shape, dtype or reduction.

    Backends do not compare what ranks call. Some hang, some fail, some silently mix up the tensors.
    """
    if any(one.inside is not None for one in world.standings):
        return  # ranks-stuck tells it better
    tables = [_numbered(list(one.calls), world.size) for one in world.standings]
    if len(tables) < 2:
        return
    for key in sorted(set.intersection(*map(set, tables)), key=lambda key: (key[1], key[0])):
        calls = [table[key] for table in tables]
        other = next((k for k, call in enumerate(calls) if signature(call) != signature(calls[0])), None)
        if other is not None:
            yield _told(world, calls[0], calls[other], world.standings[0].rank, world.standings[other].rank)
            return


def _numbered(calls: list[Call], size: int) -> dict[tuple[str, int], Call]:
    return {
        (call.kind.group, call.number): call
        for call in calls
        if call.kind.size == size and call.kind.op not in PAIRS and call.kind.op != "?"
    }


def _told(world: World, one: Call, other: Call, rank: int, other_rank: int) -> Finding:
    lines = [call.kind.source for call in (one, other)]
    return world.first.finding(
        f"The ranks call different collectives: number {one.number} of their group is {one.kind} on rank {rank} at {lines[0]} and "
        f"{other.kind} on rank {other_rank} at {lines[1]}",
        "All ranks must call the same collectives in the same order, with the same shapes and dtypes. Look for a collective under "
        "`if rank == ...`, for sets and dictionaries in a different order, and for tensors whose size depends on the rank's data.",
        step=one.step,
        source=_line(one, other),
        evidence={"number": one.number, "ranks": [rank, other_rank], "calls": [str(one.kind), str(other.kind)]},
        confidence=0.9,
    )


def _line(one: Call, other: Call) -> SourceLine | None:
    """Of the call that stands under a condition on the rank; of the first, where none does."""
    for call in (one, other):
        if any(block["what"] == "if" and block.get("parting") for block in call.kind.around):
            return call.kind.source
    return one.kind.source
