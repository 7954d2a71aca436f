"""What the program's own collectives do to gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensonde.diagnose.analysis.mixing import is_mean_op
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World, differ, same
from tensonde.model.facts import CollectiveFact
from tensonde.model.finding import Finding
from tensonde.model.trace import WeightRecord

_CLOSE = 1e-6
_NO_SUM = ("MAX", "MIN", "PRODUCT", "BAND", "BOR", "BXOR")


@world_rule("gradients-not-added-up", severity="error", phase="optimizer")
def not_added(world: World) -> Iterator[Finding]:
    """Gradients that differ between the ranks are combined by an operation other than a sum or a mean, such as the
    maximum: what the optimizer gets is not the gradient of any loss.
    """
    for collective in world.first.facts.collectives:
        wanted = "reduce" in collective.op and collective.reduce in _NO_SUM
        records = [world.weights[name] for name in collective.gradients if name in world.weights]
        if wanted and any(differ([one.raw for one in row]) for row in records):
            yield world.first.finding(
                f"Gradients are combined over the ranks by {collective.reduce}: the result is not the gradient of any loss",
                "Reduce with dist.ReduceOp.SUM and divide by the number of ranks, or reduce with dist.ReduceOp.AVG.",
                site=f"{collective.gradients[0]}:grad",
                source=collective.line,
                evidence={"reduce": collective.reduce, "parameters": some(collective.gradients)},
                confidence=0.95,
            )
            return


@world_rule(
    "gradients-reduced-to-one-rank",
    severity="error",
    phase="optimizer",
    explains=("replicas-drift", "stepped-with-own-gradients"),
)
def to_one_rank(world: World) -> Iterator[Finding]:
    """Gradients are reduced with `dist.reduce`, which gives the sum to one rank only, and another rank steps with
    what it has, or nothing sends gradients or weights back: all ranks start the first step with equal weights and end
    it with different ones.
    """
    case = world.first
    for collective in case.facts.collectives:
        if collective.op != "reduce" or not collective.gradients or collective.group_size != world.size:
            continue
        elsewhere = {
            name: owners
            for name, root in collective.roots.items()
            if (owners := _owners(world, name)) and root not in owners
        }
        records = [world.weights[name] for name in collective.gradients if name in world.weights]
        apart = [row for row in records if _equal_then_not(row)]
        back = any(one.op != "reduce" and _moves_weights(one) for one in case.facts.collectives)
        if not elsewhere and (not apart or back):
            continue
        name = next(iter(elsewhere), collective.gradients[0])
        yield case.finding(
            f"The gradient of {some(list(elsewhere), 3)} is reduced to rank {collective.roots[name]}, and rank {elsewhere[name][0]} steps it"
            if elsewhere
            else f"Only one rank gets the reduced gradients: the weights of the {world.size} ranks differ after the first step",
            "What dist.reduce leaves on ranks other than `dst` is not a gradient. Reduce to the rank whose optimizer has the parameter, or use dist.all_reduce."
            if elsewhere
            else "Use dist.all_reduce, so that every rank steps with the same gradient; or let one rank step and send its weights to the others (dist.broadcast).",
            site=f"{name}:grad",
            source=collective.line,
            evidence={"calls": collective.count, "parameters": some(collective.gradients)},
            confidence=0.95,
        )
        return


def _owners(world: World, name: str) -> list[int]:
    """The ranks whose optimizers have a parameter, where not all do."""
    facts = {case.rank.rank: case.facts.parameters.get(name) for case in world.cases}
    found = [rank for rank, fact in facts.items() if fact is not None and fact.optimizers]
    return found if len(found) < len(facts) else []


def _equal_then_not(records: list[WeightRecord]) -> bool:
    return same([one.before for one in records]) and differ([one.after for one in records])


def _moves_weights(collective: CollectiveFact) -> bool:
    return bool(collective.gradients or collective.parameters or collective.copies)


def _evidence(collective: CollectiveFact, wrong: list[str]) -> dict[str, object]:
    return {"parameters": some(wrong), "norm_before_and_after": collective.norms[wrong[0]]}


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * max(abs(one), abs(other))


@world_rule("reduction-not-awaited", severity="error", phase="optimizer", explains=("replicas-drift",))
def not_awaited(world: World) -> Iterator[Finding]:
    """Gradients are reduced with `async_op=True`, and the program never waits for the result or checks it: the
    optimizer steps with whatever is there by then.
    """
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


@world_rule("changed-before-awaited", severity="error", phase="optimizer", explains=("replicas-drift",))
def touched(world: World) -> Iterator[Finding]:
    """A tensor is reduced with `async_op=True` or sent with `isend`, and in the first steps the program changes it
    before it waits: other ranks sometimes get the old value and sometimes the new one.
    """
    for case in world.cases:
        for collective in case.facts.collectives:
            if collective.touched:
                yield case.finding(
                    f"Tensors are changed while {collective.op} still runs on them: {collective.touched} calls in the first steps",
                    "Wait first (`work.wait()`), then divide or clip; or divide before the call."
                    if collective.op != "isend"
                    else "isend does not copy: wait (`work.wait()`) before the tensor is refilled, or send a new one each time (`x.clone()`).",
                    site=f"{collective.gradients[0]}:grad" if collective.gradients else None,
                    source=collective.line,
                    evidence={"changed": collective.touched, "calls": collective.count},
                    confidence=0.95,
                )
                return


@world_rule("reduced-to-infinity", severity="error", phase="optimizer", explains=("nonfinite", "replicas-drift"))
def overflows(world: World) -> Iterator[Finding]:
    """In the first step, the gradients of all ranks are finite after the backward pass, but not when the optimizer
    gets them: a copy of them was summed over the ranks in a dtype that the sum does not fit into. Silent if a scaler
    chooses the scale: it tries what fits.
    """
    case = world.first
    if case.facts.clipping.scalers or case.facts.clipping.scaled_losses:
        return
    for collective in case.facts.collectives:
        for name in collective.copies:
            records = world.weights.get(name, [])
            raw = [_nonfinite(record.raw) for record in records]
            used = [_nonfinite(record.gradient) for record in records]
            if records and not any(raw) and all(used):
                yield case.finding(
                    f"The gradient of {name} is finite on all ranks, and infinite after the sum over the ranks",
                    "Sum in float32, or divide by the number of ranks and by the scale of the loss before the sum: float16 ends at 65504.",
                    site=f"{name}:grad",
                    source=collective.line,
                    evidence={"norms": [record.raw.get("norm") for record in records]},
                    confidence=0.9,
                )
                return


def _nonfinite(digest: Mapping[str, float]) -> bool:
    return any(digest.get(field, 0.0) > 0 for field in ("nan", "pos_inf", "neg_inf"))


@world_rule("weights-summed-over-ranks", severity="error", phase="optimizer")
def weights_summed(world: World) -> Iterator[Finding]:
    """The program sums parameters over all ranks, and divides them neither before nor after: the next step uses the
    sum as its weights.

    The rule compares the norms around the first such call with those of the digests before and after it.
    """
    case = world.first
    for collective in case.facts.collectives:
        if collective.op != "all_reduce" or collective.reduce != "SUM" or collective.group_size != world.size:
            continue
        names = [name for name in collective.norms if name in collective.parameters]
        if names and _kept_sum(case, collective, names, world.size):
            yield case.finding(
                f"Weights are summed over {world.size} ranks at {collective.line} and not divided",
                f"Divide by the number of ranks after the all_reduce and before this line (`p /= {world.size}`), or reduce with "
                "dist.ReduceOp.AVG.",
                step=collective.first_step,
                site=f"{names[0]}:value",
                source=collective.after or collective.line,
                evidence=_evidence(collective, names),
                confidence=0.85,
            )


@world_rule("statistics-summed-over-ranks", severity="error", phase="forward")
def statistics_summed(world: World) -> Iterator[Finding]:
    """The program sums running statistics over all ranks, and its text never divides them."""
    for collective in world.first.facts.collectives:
        wanted = collective.op == "all_reduce" and collective.reduce == "SUM" and collective.group_size == world.size
        running = [name for name in collective.buffers if name.rpartition(".")[2].startswith("running_")]
        if wanted and running and not collective.buffers_divided:
            yield world.first.finding(
                f"Running statistics are summed over {world.size} ranks and not divided: {some(running, 3)} are about {world.size} times too large",
                f"Divide by the number of ranks after the all_reduce (`buffer /= {world.size}`), or reduce with dist.ReduceOp.AVG.",
                step=collective.first_step,
                site=f"{running[0]}:value",
                source=collective.line,
                evidence={"buffers": running[:8], "calls": collective.count},
                confidence=0.9,
            )
            return


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
    """The program clips the gradients of each rank by their norm on that rank, and averages them over the ranks
    afterwards.

    In the first step, the gradient that goes into the sum is smaller than the one of the backward pass, by the same
    factor for every parameter, and the factor differs between ranks. So ranks with large gradients count less, and
    the average is not the clipped gradient of the global batch.
    """
    factors = [_shrunk(case) for case in world.cases]
    case = world.first
    if any(factor is None for factor in factors) or case.facts.clipping.line is None:
        return
    values = [factor for factor in factors if factor is not None]
    if all(value < 1 - _CLOSE for value in values) and max(values) - min(values) > 1e-3 * max(values):
        yield case.finding(
            "Gradients are clipped on each rank before they are averaged over the ranks",
            "Clip after the reduction: `clip_grad_norm_` then sees the gradient of the global batch, and scales it equally on all ranks.",
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
    """A number that is a mean on each rank, such as an accuracy or a loss, is summed over all ranks, and the sum is
    then printed or compared: nothing divides it by the number of ranks.
    """
    for collective in world.first.facts.collectives:
        line = collective.line
        if collective.op not in ("all_reduce", "reduce") or collective.reduce != "SUM" or not collective.scalar:
            continue
        if line is None or collective.group_size != world.size or not collective.undivided_mean:
            continue
        yield world.first.finding(
            f"A mean is summed over {world.size} ranks and not divided: it is {world.size} times too large",
            f"Divide it after the {collective.op} (`x /= dist.get_world_size()`), or reduce with dist.ReduceOp.AVG.",
            step=collective.first_step,
            source=line,
            evidence={"calls": collective.count, "reduce": collective.reduce},
            confidence=0.85,
        )
        return


@world_rule("divided-by-own-count", severity="warning")
def own_count(world: World) -> Iterator[Finding]:
    """A number that is counted over the batches of each rank is summed over all ranks, and divided by another number
    that was counted over the same batches and was not summed: an accuracy may be above 1.
    """
    for collective in world.first.facts.collectives:
        if collective.op not in ("all_reduce", "reduce") or collective.reduce != "SUM" or collective.by_own is None:
            continue
        if collective.group_size == world.size:
            yield world.first.finding(
                f"The sum over {world.size} ranks at {collective.line} is divided by a number from one rank: it is about {world.size} times too large",
                f"Sum the divisor over the ranks as well ({collective.op}), or divide by the number of all samples.",
                step=collective.first_step,
                source=collective.by_own,
                evidence={"calls": collective.count, "reduced_at": str(collective.line)},
                confidence=0.85,
            )
            return


@world_rule("reduced-again", severity="error", phase="backward")
def reduced_again(world: World) -> Iterator[Finding]:
    """The program sums gradients over all ranks after a backward pass, runs backward once more without dividing or
    clearing them, and sums them again: the gradient of the first pass is counted as often as there are ranks.
    """
    for collective in world.first.facts.collectives:
        if collective.again and collective.reduce == "SUM" and collective.group_size == world.size:
            yield world.first.finding(
                f"Gradients that were already summed over {world.size} ranks are summed again with those of the next micro-batch",
                "Reduce the gradients once, after the last backward pass before the step.",
                site=f"{collective.gradients[0]}:grad" if collective.gradients else None,
                source=collective.line,
                evidence={"calls": collective.count, "steps": collective.steps},
                confidence=0.95,
            )
            return


@world_rule("loss-divided-by-ranks", severity="warning", phase="backward")
def loss_divided(world: World) -> Iterator[Finding]:
    """DistributedDataParallel or FSDP2 averages gradients over the ranks. The loss that goes backward is a mean over
    a rank's batch, divided by the number of ranks: gradients are too small by that factor.

    The program's text shows that the divisor is the number of ranks, and not of micro-batches.
    """
    trace = world.first.first
    if (not world.replicas and not world.sharded) or world.reduced or trace is None or trace.loss is None:
        return
    if any(replica.hooked for replica in world.replicas) or not world.first.facts.divided_by_ranks:
        return
    op = trace.ops[trace.loss]
    given, made = (tensors[0].stats.get("norm", 0.0) if tensors else 0.0 for tensors in (op.inputs, op.outputs))
    source = trace.ops[op.inputs[0].producer] if op.inputs and op.inputs[0].producer is not None else None
    if made <= 0 or not _close(given, world.size * made) or source is None or not is_mean_op(source):
        return
    if op.source is None or op.source.line not in world.first.facts.divided_by_ranks:
        return
    yield world.first.finding(
        f"The loss is divided by the number of ranks ({world.size}), and the gradients are averaged over the ranks as well",
        f"Remove the division from the loss that goes backward: with it, gradients are {world.size} times too small. Divide a copy for the log.",
        at=op,
        evidence={"loss": given, "divided": made},
        confidence=0.9,
    )


@world_rule("loss-summed-over-ranks", severity="warning", phase="backward")
def loss_summed(world: World) -> Iterator[Finding]:
    """The loss that goes backward is the sum of the losses of all ranks, by an op that has a gradient, and gradients
    are averaged over the ranks: the backward pass of the sum also adds up, so gradients are too large by the number
    of ranks.
    """
    traces = [case.first for case in world.cases]
    if not world.replicas or any(trace is None or trace.loss is None for trace in traces):
        return
    ops_ = [trace.ops[trace.loss] for trace in traces if trace is not None and trace.loss is not None]
    if not all(len(op.inputs) == 1 and len(op.outputs) == 1 and op.inputs[0].requires_grad for op in ops_):
        return
    given = [op.inputs[0].stats.get("mean", 0.0) for op in ops_]
    made = [op.outputs[0].stats.get("mean", 0.0) for op in ops_]
    whole = len(ops_) == world.size and ops_[0].outputs[0].stats.get("count") == 1 == ops_[0].inputs[0].stats.get(
        "count"
    )
    if not whole or len({round(value, 9) for value in given}) == 1 or not all(_close(one, sum(given)) for one in made):
        return
    yield world.first.finding(
        f"The loss that goes backward is the sum over {world.size} ranks, with a gradient: gradients are {world.size} times too large",
        "Divide the sum by the number of ranks, or run backward from the rank's own loss: DistributedDataParallel averages the gradients.",
        at=ops_[0],
        evidence={"losses": given, "sum": made[0]},
        confidence=0.9,
    )


@world_rule("gradients-exchanged", severity="error", phase="optimizer", explains=("replicas-drift", "nothing-learnt"))
def exchanged(world: World) -> Iterator[Finding]:
    """The program packs gradients into one tensor, reduces it, and unpacks it. In the first step, the sum of all
    gradients that the optimizers get equals that of what the ranks have computed, but those of single parameters do
    not: they were unpacked in a different order, or at different places, than they were packed.
    """
    collective = next((one for one in world.first.facts.collectives if len(one.copies) > 1), None)
    names = [name for name in (collective.copies if collective is not None else ()) if name in world.weights]
    records = [world.weights[name] for name in names]
    if collective is None or len(names) < 2 or not all(same([one.gradient for one in row]) for row in records):
        return
    if any("mean" not in one.raw for row in records for one in row):
        return
    meant = [sum(_total(one.raw) for one in row) / world.size for row in records]
    given = [_total(row[0].gradient) for row in records]
    scales = [sum(_scale(one.raw) for one in row) / world.size for row in records]
    for factor in (1.0, float(world.size)):
        off = [
            name
            for name, want, got, scale in zip(names, meant, given, scales, strict=True)
            if abs(got - factor * want) > _EXCHANGED * factor * scale
        ]
        if len(off) > 1 and abs(sum(given) - factor * sum(meant)) <= _KEPT * factor * sum(scales):
            yield world.first.finding(
                f"Gradients are mixed up: {some(off, 3)} are stepped with values of other parameters, after {collective.op} of all gradients in one tensor",
                "Unpack the reduced tensor in the order in which it was packed: go through the same list of parameters both times.",
                site=f"{off[0]}:grad",
                source=collective.line,
                evidence={"parameters": off[:8], "of": len(names)},
                confidence=0.9,
            )
            return
        if not off:
            return


_EXCHANGED, _KEPT = 1e-2, 1e-5
"""Of the sum of absolute values: what a parameter's gradient is off by, and what all of them together may be by rounding."""


def _total(digest: Mapping[str, float]) -> float:
    return digest.get("mean", 0.0) * digest.get("count", 0)


def _scale(digest: Mapping[str, float]) -> float:
    return digest.get("absmean", 0.0) * digest.get("count", 0)
