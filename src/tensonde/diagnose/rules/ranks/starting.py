"""Ranks that begin with different models."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World, differ
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine


@world_rule("ranks-start-differently", severity="error", phase="init", explains=("replicas-drift",))
def different_start(world: World) -> Iterator[Finding]:
    """The program or DistributedDataParallel reduces the gradient of a parameter over all ranks, but the ranks start
    with different values of it.

    Equal updates of different weights stay different: each rank trains its own model, with gradients of the others.
    """
    wrapped = {name: replica for replica in world.replicas for name in replica.parameters}
    expected = {name: records for name, records in world.weights.items() if name in world.reduced or name in wrapped}
    wrong = [name for name, records in expected.items() if differ([record.before for record in records])]
    if not wrong:
        yield from _parts_of_others(world)
        return
    first = world.first
    replica = wrapped.get(wrong[0])
    if replica is not None and wrong[0] in replica.later:
        yield first.finding(
            f"{some(wrong, 3)} were created after the model was wrapped, with different values on each rank",
            "DistributedDataParallel sends the parameters of rank 0 to the others when it is created, and reduces only their gradients. Build the whole model first.",
            site=f"{wrong[0]}:value",
            source=replica.line,
            evidence={"parameters": wrong[:8]},
            confidence=0.95,
        )
        return
    optimizer = next(iter(first.stepping), None)
    if replica is None and world.together and len(wrong) < len(expected):
        reducing = next((one for one in first.facts.collectives if wrong[0] in (*one.gradients, *one.copies)), None)
        yield first.finding(
            f"Gradients of different parameters are averaged: {some(wrong, 3)} differ between the ranks before the first step, the other "
            f"{len(expected) - len(wrong)} do not",
            "Where each rank has its own part of the model, such as an expert, its gradients belong to this part alone: leave them out of the reduction "
            "(and divide them by the number of ranks, if the loss of each rank is a mean). If the ranks should share them, send the weights of rank 0.",
            site=f"{wrong[0]}:value",
            source=reducing.line if reducing is not None else None,
            evidence={"parameters": wrong[:8], "gradients": "reduced over all ranks"},
            confidence=0.9,
        )
        return
    loaded = world.only_some_load("weights")
    why = f", and only some ranks load weights at {loaded}" if loaded is not None else ""
    if loaded is None and replica is not None and (every := _loaded_by_all(world)) is not None:
        yield _loaded_differently(world, wrong, len(expected), every)
        return
    if loaded is None and world.seeded_apart is not None:
        why = f"; they are seeded differently at {world.seeded_apart}"
    yield first.finding(
        f"The ranks start from different weights: {len(wrong)} of {len(expected)} parameters differ before the first step{why}",
        "Send the weights of rank 0 to the others before the optimizer is created: "
        "`for p in model.parameters(): dist.broadcast(p.data, src=0)`. DistributedDataParallel does this by itself. "
        "Seeding all ranks alike helps only if nothing else draws random numbers before.",
        site=f"{wrong[0]}:value",
        source=loaded or (optimizer.made if optimizer is not None else None),
        evidence={"parameters": wrong[:8], "gradients": "reduced over all ranks"},
        confidence=0.95,
    )


def _loaded_by_all(world: World) -> SourceLine | None:
    """The last line at which every rank loads weights."""
    each = [
        [one.line for one in case.facts.beginning.loads if one.what == "weights" and one.line] for case in world.cases
    ]
    return next((line for line in reversed(each[0]) if all(line in lines for lines in each)), None)


def _loaded_differently(world: World, wrong: list[str], known: int, line: SourceLine) -> Finding:
    """DistributedDataParallel sent the weights of rank 0 when it was made, so they were replaced afterwards."""
    return world.first.finding(
        f"The ranks load different weights at {line}: {len(wrong)} of {known} parameters differ before the first step",
        "Every rank must load the same file. DistributedDataParallel sends the weights of rank 0 only when it is created: load before you wrap the model, "
        "or load the file of rank 0 on all ranks.",
        site=f"{wrong[0]}:value",
        source=line,
        evidence={"parameters": wrong[:8], "gradients": "reduced over all ranks"},
        confidence=0.95,
    )


def _parts_of_others(world: World) -> Iterator[Finding]:
    """`fully_shard` keeps this rank's part of what this rank has: it sends nothing. So the parts must be of the same whole."""
    tables = [list(case.facts.beginning.parted) for case in world.cases]
    if len({len(table) for table in tables}) > 1:
        return
    wrong = []
    for row in zip(*tables, strict=True):
        if len({(one.name, tuple(one.shape), one.ranks) for one in row}) > 1:
            return  # the ranks do not shard the same model
        if row[0].ranks == world.size and len({one.digest for one in row}) > 1:
            wrong.append(row[0])
    if not wrong:
        return
    seeded = world.seeded_apart
    why = f": they are seeded differently at {seeded}" if seeded is not None else ""
    yield world.first.finding(
        f"The ranks shard different models: {len(wrong)} of {len(tables[0])} parameters had different values on different ranks before fully_shard{why}",
        "fully_shard keeps, on each rank, a part of that rank's own values. Build the model with the same seed on all ranks and seed by the rank afterwards, or "
        "load one state into all of them (set_model_state_dict with broadcast_from_rank0=True).",
        site=f"{wrong[0].name}:value" if wrong[0].name else None,
        source=seeded or wrong[0].line,
        evidence={"parameters": [one.name for one in wrong[:8]], "sharded_at": str(wrong[0].line)},
        confidence=0.95,
    )
