"""Steps that the ranks do not make alike: rates, scalers, clearing, scales of shards."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World
from tensonde.model.facts import OptimizerFact
from tensonde.model.finding import Finding

_ALONE = 4
"""Steps after which something should have brought the ranks together."""


@world_rule("learning-rates-differ", severity="error", phase="optimizer", explains=("replicas-drift",))
def rates(world: World) -> Iterator[Finding]:
    """The gradients of all ranks are averaged, but in the same step the ranks use different learning rates."""
    if not world.replicas and not world.reduced:
        return
    for group in range(8):
        tables = [dict(case.series(f"lr/{group}")) for case in world.cases]
        steps = sorted(set.intersection(*(set(table) for table in tables)))
        apart = next((step for step in steps if len({table[step] for table in tables}) > 1), None)
        if apart is None:
            continue
        case = world.first
        optimizer = next(iter(case.stepping), None)
        scheduler = next(iter(case.facts.schedulers), None)
        later = apart > steps[0] and scheduler is not None
        made = optimizer.made if optimizer is not None else None
        if not case.facts.schedulers and case.facts.rates_set:
            made = case.facts.rates_set[0].source
        yield case.finding(
            f"The ranks use different learning rates from step {apart} on: {some([f'{table[apart]:g}' for table in tables], 8)}",
            "A scheduler that depends on a loss must get the same loss on all ranks: average it first (dist.all_reduce). Rates that depend on "
            "the rank are a mistake: all ranks hold the same model.",
            step=apart,
            source=(scheduler.line or scheduler.made) if later and scheduler is not None else made,
            evidence={"rates": [table[apart] for table in tables], "group": group},
            confidence=0.95,
        )
        return


@world_rule(
    "stepped-on-some-ranks",
    severity="error",
    phase="optimizer",
    explains=("replicas-drift", "nan-in-optimizer", "nonfinite"),
)
def stepped(world: World) -> Iterator[Finding]:
    """The ranks step with gradients that they have reduced, but in the same step the scaler of one rank finds
    infinities and skips it, and that of another does not: the scaler looked for them before the gradients were
    reduced.
    """
    if not world.replicas and not world.reduced and not world.sharded:
        return
    skipped = [{step for step, _ in case.series("skipped")} for case in world.cases]
    last = min(case.steps for case in world.cases)
    apart = [
        step for step in sorted(set[int]().union(*skipped).difference(set[int].intersection(*skipped))) if step < last
    ]
    if not apart:
        return
    who = [str(case.rank.rank) for case, steps in zip(world.cases, skipped, strict=True) if apart[0] in steps]
    optimizer = next(iter(world.first.stepping), None)
    yield world.first.finding(
        f"Only rank {some(who, 8)} skips step {apart[0]}, because its gradients are infinite; the other ranks take the step",
        "Reduce the gradients before the scaler looks at them: `scaler.unscale_` or `scaler.step` after the last all_reduce, or combine over the ranks what it has found.",
        step=apart[0],
        source=optimizer.step_line if optimizer is not None else None,
        evidence={"skipped_by": who, "steps": apart[:8]},
        confidence=0.95,
    )


@world_rule(
    "cleared-on-some-ranks",
    severity="error",
    phase="optimizer",
    explains=("gradients-never-cleared", "replicas-drift"),
)
def cleared(world: World) -> Iterator[Finding]:
    """Some ranks clear their gradients in every step, and others never do: the ranks step with different gradients,
    although these are averaged.
    """
    never = [case for case in world.cases if any(_never_cleared(one) for one in case.stepping)]
    always = [case for case in world.cases if case.facts.sequence.cleared_line is not None and case not in never]
    if not never or not always or (not world.replicas and not world.reduced):
        return
    case = always[0]
    yield case.finding(
        f"Only rank {some([str(one.rank.rank) for one in always], 8)} clears its gradients; on rank {some([str(one.rank.rank) for one in never], 8)} every step adds to those of all earlier steps",
        "Call zero_grad() on every rank, outside `if rank == 0:`.",
        source=case.facts.sequence.cleared_line,
        evidence={"clear": [one.rank.rank for one in always], "never": [one.rank.rank for one in never]},
        confidence=0.95,
    )


def _never_cleared(optimizer: OptimizerFact) -> bool:
    looked = optimizer.looked_at
    return looked >= _ALONE and optimizer.uncleared >= 0.9 * (looked - 1) and not optimizer.closure


@world_rule("shards-scaled-differently", severity="error", phase="optimizer")
def scaled(world: World) -> Iterator[Finding]:
    """Each rank holds a part of the parameters (FSDP2, DTensor). Between the backward pass and the optimizer's step
    of the first step, all gradients of a rank are scaled by one factor, which differs between ranks: each rank has
    clipped by the norm of its own part.
    """
    parts = sorted(world.sharded)
    factors = [factor_of(case, parts) for case in world.cases]
    values = [factor for factor in factors if factor is not None]
    if len(values) < len(factors) or max(values) - min(values) <= 1e-3 * max(values):
        return
    case = world.first
    optimizer = next(iter(case.stepping), None)
    yield case.finding(
        f"Each rank scales the gradients of its own shards by a different factor: {some([f'{value:.4g}' for value in values], 8)}",
        "The norm must cover all shards: `torch.nn.utils.clip_grad_norm_(model.parameters(), limit)` computes it, or sum the squares over all ranks yourself (dist.all_reduce).",
        site=f"{parts[0]}:grad",
        source=case.facts.clipping.line
        or case.facts.beginning.rewrite
        or (optimizer.step_line if optimizer is not None else None),
        evidence={"factors": values},
        confidence=0.9,
    )


def factor_of(case: Case, names: list[str]) -> float | None:
    """By how much all these gradients were scaled before the optimizer's step; None where not by one factor."""
    records = {record.name: record for record in (case.first.weights if case.first else ())}
    found = [
        records[name].gradient["norm"] / records[name].raw["norm"]
        for name in names
        if name in records and records[name].raw.get("norm") and "norm" in records[name].gradient
    ]
    if not found or max(found) - min(found) > 1e-4 * max(found):
        return None
    return found[0]
