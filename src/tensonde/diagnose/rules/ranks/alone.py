"""Ranks that train on data of their own and never bring their gradients together."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.replicated import drawn
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World, differ, same, same_in_step
from tensonde.model.facts import CollectiveFact
from tensonde.model.finding import Finding
from tensonde.model.trace import WeightRecord

_ALONE = 4
"""Steps after which something should have brought the ranks together."""


@world_rule("ranks-train-alone", severity="error", phase="optimizer")
def alone(world: World) -> Iterator[Finding]:
    """A sampler splits the data over the ranks, all ranks start with the same weights, and nothing ever combines
    their gradients or weights: each rank trains its own model, on a part of the data.
    """
    case = world.first
    optimizer = next(iter(case.stepping), None)
    if world.replicas or world.reduced or world.sharded or world.sent or optimizer is None or optimizer.steps < _ALONE:
        return
    if any(_brings_together(one, optimizer.steps) for each in world.cases for one in each.facts.collectives):
        return
    if not all(any(one.steps and one.dealt for one in each.facts.loaders) for each in world.cases):
        return
    random = {name: records for name, records in world.weights.items() if drawn(records[0])}
    if not all(same([record.before for record in records]) for records in random.values()):
        return
    apart = [name for name, records in random.items() if _stays_apart(world, name, records)]
    if apart:
        yield case.finding(
            f"Each of the {world.size} ranks trains its own model: nothing combines their gradients, although a sampler splits the data over the ranks",
            "Wrap the model in DistributedDataParallel (with accelerate: give it to `accelerator.prepare`), or reduce the gradients after each backward pass.",
            site=f"{apart[0]}:grad",
            source=optimizer.backward_line or optimizer.step_line,
            evidence={"parameters": apart[:8], "steps": optimizer.steps},
            confidence=0.9,
        )


@world_rule(
    "stepped-with-own-gradients",
    severity="error",
    phase="optimizer",
    explains=("parameter-not-in-optimizer", "replicas-drift", "rank-left-out"),
)
def own_gradients(world: World) -> Iterator[Finding]:
    """Each rank's optimizer has a part of the parameters and sends it to the others after its step, so the ranks hold
    one model. But each rank has its own data and steps with its own gradients, and nothing reduces gradients: every
    parameter is trained on the data of one rank.
    """
    case = world.first
    optimizer = next(iter(case.stepping), None)
    sent = {name for one in _sending(world) for name in one.parameters}
    parted = [
        name
        for name in sent
        if len({bool(fact.optimizers) for c in world.cases if (fact := c.facts.parameters.get(name))}) > 1
    ]
    apart = [name for name in parted if name in world.weights and differ([r.gradient for r in world.weights[name]])]
    if apart and optimizer is not None:
        yield case.finding(
            f"Each rank steps its part of the parameters with its own gradients: nothing reduces them, and {some(sorted(apart), 3)} differ",
            "Reduce the gradients over all ranks before the step (dist.all_reduce, then divide by the number of ranks; or dist.reduce to the rank that has "
            "the parameter).",
            site=f"{min(apart)}:grad",
            source=optimizer.step_line,
            evidence={"parameters": sorted(apart)[:8], "sent": len(sent)},
            confidence=0.9,
        )


@world_rule(
    "weights-of-one-rank-kept", severity="error", phase="optimizer", explains=("replicas-drift", "ranks-train-alone")
)
def one_rank_kept(world: World) -> Iterator[Finding]:
    """Every rank steps all parameters with the gradients of its own data, and nothing reduces them. Then one rank sends
    its weights to the others, in every step: what the other ranks learned in the step is overwritten.
    """
    sending = _sending(world)
    if any(
        not one.scalar and not one.op.startswith(("broadcast", "barrier"))
        for each in world.cases
        for one in each.facts.collectives
    ):
        return  # it may bring the weights of all ranks to the one that sends them
    records = {name: world.weights[name] for one in sending for name in one.parameters if name in world.weights}
    apart = [
        name
        for name, rows in records.items()
        if all((fact := case.facts.parameters.get(name)) is not None and fact.optimizers for case in world.cases)
        and same([row.before for row in rows])
        and differ([row.gradient for row in rows])
        and differ([row.after for row in rows])
    ]
    if apart:
        yield world.first.finding(
            "One rank sends its weights to the others in every step, and nothing reduces the gradients: what the others learn is overwritten in "
            f"{some(sorted(apart), 3)}",
            "Average the gradients before the step (dist.all_reduce, then divide by the number of ranks), or wrap the model in DistributedDataParallel. "
            "Then the weights stay equal after they were sent once.",
            site=f"{min(apart)}:grad",
            source=sending[0].line,
            evidence={"parameters": sorted(apart)[:8], "calls": sending[0].count},
            confidence=0.9,
        )


def _sending(world: World) -> list[CollectiveFact]:
    """The calls that send parameters from one rank to the others in most steps, where nothing else may bring ranks with data of their own together."""
    optimizer = next(iter(world.first.stepping), None)
    if world.replicas or world.reduced or world.sharded or world.together or world.same_inputs or optimizer is None:
        return []
    used = [one for each in world.cases for one in each.facts.collectives]
    if any(one.gradients or one.copies or (one.op.startswith("reduce_scatter") and not one.scalar) for one in used):
        return []
    if any(one.op == "all_reduce" and not one.scalar for one in used):
        return []  # it may carry all gradients in a form of its own
    return [
        one
        for one in used
        if one.op.startswith("broadcast")
        and one.parameters
        and one.steps >= optimizer.steps // 2
        and optimizer.steps >= _ALONE
    ]


def _stays_apart(world: World, name: str, records: list[WeightRecord]) -> bool:
    """The ranks have different gradients of it in the first step, and different values of it in the last."""
    last = [rows for _, rows in world.common(f"{name}:value")][-1:]
    return differ([record.gradient for record in records]) and bool(last) and not same_in_step(last[0])


def _brings_together(one: CollectiveFact, steps: int) -> bool:
    """It may carry gradients or weights."""
    if one.op.startswith(("send", "isend", "recv", "irecv", "batch")):
        return True
    return not one.scalar and (not one.op.startswith(("broadcast", "barrier")) or one.count >= steps // 2)
