"""What the program's own collectives do to gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World
from tensonde.model.facts import CollectiveFact
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops

_CLOSE = 1e-6
_LOSSES = ops(Trait.LOSS_FROM_ZERO | Trait.ELEMENTWISE_LOSS)


@world_rule("gradients-summed-over-ranks", severity="warning", phase="optimizer")
def summed(world: World) -> Iterator[Finding]:
    """The program adds up gradients over all ranks, nothing divides them, and each rank's loss is a mean over its own batch.

    In the first step the gradient that goes into the sum is the one of the backward pass, and what comes out is what the
    optimizer gets. So the update is that of the global batch times the number of ranks.
    """
    case = world.first
    if world.together:
        return  # each rank has a part of the gradient
    for collective in case.facts.collectives:
        if collective.op != "all_reduce" or collective.reduce != "SUM" or collective.group_size != world.size:
            continue
        wrong = [name for name, norms in collective.norms.items() if _undivided(world, name, norms)]
        if wrong and len(wrong) == len(collective.norms) and _is_mean(case):
            yield case.finding(
                f"Gradients are added up over {world.size} ranks at {collective.line} and not divided: the step is {world.size} times too large",
                f"Divide by the number of ranks after the all_reduce and before this line (`p.grad /= {world.size}`), or reduce with "
                "dist.ReduceOp.AVG.",
                site=f"{wrong[0]}:grad",
                source=collective.after or collective.line,
                evidence=_evidence(collective, wrong),
                confidence=0.8,
            )


def _evidence(collective: CollectiveFact, wrong: list[str]) -> dict[str, object]:
    return {"parameters": some(wrong), "norm_before_and_after": collective.norms[wrong[0]]}


def _undivided(world: World, name: str, norms: list[float]) -> bool:
    """What the backward pass gave goes in, and what comes out goes to the optimizer."""
    records = world.weights.get(name)
    if records is None or len(norms) != 2:
        return False
    raw, used = records[0].raw.get("norm", -1.0), records[0].gradient.get("norm", -1.0)
    return _close(raw, norms[0]) and _close(used, norms[1]) and norms[1] > 0


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * max(abs(one), abs(other))


def _is_mean(case: Case) -> bool:
    """The loss of the first step is a mean over the batch, and nothing divides it by the number of ranks."""
    trace = case.first
    if trace is None or trace.loss is None:
        return False
    op = trace.ops[trace.loss]
    return op.op == "mean" or (op.op in _LOSSES and op.arguments.get("reduction", "mean") in ("mean", None))


@world_rule("averaged-twice", severity="warning", phase="optimizer")
def averaged_twice(world: World) -> Iterator[Finding]:
    """DistributedDataParallel averages gradients over the ranks. In the first step, what the optimizer gets is this average divided by the number
    of ranks once more, for every parameter and on all ranks, and the loss is a plain mean over one batch."""
    case = world.first
    wrapped = {name for replica in world.replicas for name in replica.parameters}
    pairs = [
        (record.raw.get("norm", 0.0), record.gradient.get("norm", 0.0))
        for name, records in world.weights.items()
        if name in wrapped
        for record in records
    ]
    whole = [(raw, used) for raw, used in pairs if raw > 0]
    if not whole or not all(_close(raw, world.size * used) for raw, used in whole):
        return
    if case.facts.sequence.backwards > case.facts.steps + 1 or not _is_mean(case) or case.facts.clipping.calls:
        return  # the mean over micro-batches, or a limit that happens to be met
    optimizer = next(iter(case.stepping), None)
    yield case.finding(
        f"Gradients are divided by the number of ranks ({world.size}) although DistributedDataParallel has averaged them",
        f"Take the division out: with it, steps are {world.size} times too small.",
        site=None,
        source=case.facts.beginning.rewrite or (optimizer.step_line if optimizer is not None else None),
        evidence={"norm_after_backward": whole[0][0], "norm_used": whole[0][1]},
        confidence=0.85,
    )


@world_rule("reduction-not-awaited", severity="error", phase="optimizer", explains=("replicas-drift",))
def not_awaited(world: World) -> Iterator[Finding]:
    """Gradients are reduced with `async_op=True`, and the program never waits for the result or asks about it: the optimizer steps with
    whatever is there by then."""
    for case in world.cases:
        for collective in case.facts.collectives:
            if collective.left and collective.left == collective.count and collective.gradients:
                yield case.finding(
                    f"The gradients are used before they are reduced: nothing waits for the {collective.count} calls of {collective.op}",
                    "Keep what the call returns, and call `wait()` on each before the optimizer's step.",
                    site=f"{collective.gradients[0]}:grad",
                    source=collective.line,
                    evidence={"calls": collective.count, "parameters": some(collective.gradients)},
                    confidence=0.95,
                )
                return


@world_rule("weights-summed-over-ranks", severity="error", phase="optimizer")
def weights_summed(world: World) -> Iterator[Finding]:
    """The program adds up parameters over all ranks, and neither divides them before nor after: the sum goes in as the next step's weights.

    Compared are the norms around the first such call with those of the digests before and after it.
    """
    case = world.first
    for collective in case.facts.collectives:
        if collective.op != "all_reduce" or collective.reduce != "SUM" or collective.group_size != world.size:
            continue
        names = [name for name in collective.norms if name in collective.parameters]
        if names and _kept_sum(case, collective, names, world.size):
            yield case.finding(
                f"Weights are added up over {world.size} ranks at {collective.line} and not divided",
                f"Divide by the number of ranks after the all_reduce and before this line (`p /= {world.size}`), or reduce with "
                "dist.ReduceOp.AVG.",
                step=collective.first_step,
                site=f"{names[0]}:value",
                source=collective.after or collective.line,
                evidence=_evidence(collective, names),
                confidence=0.85,
            )


def _kept_sum(case: Case, collective: CollectiveFact, names: list[str], ranks: int) -> bool:
    """By the norm of all of them. Roughly: between digest and call lies at most one step of the optimizer, which changes less than a
    factor of two does."""
    sizes = [0.0, 0.0, 0.0, 0.0]
    for name in names:
        rows = case.digests(f"{name}:value", ("step", "norm"))
        before = [row["norm"] for row in rows if row["step"] < collective.first_step]
        after = [row["norm"] for row in rows if row["step"] >= collective.first_step]
        if not before or not after:
            return False
        for k, norm in enumerate((before[-1], *collective.norms[name], after[0])):
            sizes[k] += float(norm) ** 2
    before_, given, summed, after_ = (size**0.5 for size in sizes)
    if given <= 0 or summed < 0.6 * ranks * given:
        return False
    return bool(abs(before_ / given - 1) < 0.25 and abs(after_ / summed - 1) < 0.25)


@world_rule("clipped-before-reduced", severity="warning", phase="optimizer")
def clipped_first(world: World) -> Iterator[Finding]:
    """The program clips the gradients of each rank by the norm that they have there, and averages them over the ranks afterwards.

    In the first step the gradient that goes into the sum is smaller than the one of the backward pass, by the same factor for every
    parameter, which is another one on another rank. So ranks with large gradients count less, and the average is not the clipped gradient of the global batch.
    """
    factors = [_shrunk(case) for case in world.cases]
    case = world.first
    if any(factor is None for factor in factors) or case.facts.clipping.line is None:
        return
    values = [factor for factor in factors if factor is not None]
    if all(value < 1 - _CLOSE for value in values) and max(values) - min(values) > 1e-3 * max(values):
        yield case.finding(
            "Gradients are clipped on each rank before they are averaged over the ranks",
            "Clip after the reduction: `clip_grad_norm_` then sees the gradient of the global batch, and scales it alike on all ranks.",
            site=None,
            source=case.facts.clipping.line,
            evidence={"scaled_by": values},
            confidence=0.85,
        )


def _shrunk(case: Case) -> float | None:
    """By how much all gradients were scaled between the backward pass and their reduction; None where not by one factor."""
    raw = {record.name: record.raw.get("norm", 0.0) for record in (case.first.weights if case.first else ())}
    found = [
        norms[0] / raw[name]
        for collective in case.facts.collectives
        if collective.op == "all_reduce"
        for name, norms in collective.norms.items()
        if raw.get(name, 0.0) > 0 and len(norms) == 2
    ]
    if not found or max(found) - min(found) > 1e-4 * max(found):
        return None
    return found[0]


@world_rule("mean-summed-over-ranks", severity="warning")
def mean_summed(world: World) -> Iterator[Finding]:
    """A number that is a mean on each rank, such as an accuracy or a loss, is added up over all ranks, and what is printed or compared
    afterwards is the sum: nothing divides it by the number of ranks."""
    for collective in world.first.facts.collectives:
        line = collective.line
        if collective.op not in ("all_reduce", "reduce") or collective.reduce != "SUM" or not collective.scalar:
            continue
        if line is None or collective.group_size != world.size or not collective.undivided_mean:
            continue
        yield world.first.finding(
            f"A mean is added up over {world.size} ranks and not divided: it is {world.size} times too large",
            f"Divide it after the {collective.op} (`x /= dist.get_world_size()`), or reduce with dist.ReduceOp.AVG.",
            step=collective.first_step,
            source=line,
            evidence={"calls": collective.count, "reduce": collective.reduce},
            confidence=0.85,
        )
        return
