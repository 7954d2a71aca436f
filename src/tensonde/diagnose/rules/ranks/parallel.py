"""Models that the ranks compute together: the ops of the first step are compared one by one between the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensonde.diagnose.analysis.together import aligned, leads_to, parted_by_data
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World, differ, same
from tensonde.model.facts import RankCondition
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, TensorFact

_FEW = 8
"""Tensors with fewer elements are metrics, not features."""


def _column(ops: tuple[OpRecord, ...], k: int) -> list[TensorFact]:
    return [op.inputs[k] for op in ops] if all(len(op.inputs) > k for op in ops) else []


def _shared(tensors: list[TensorFact]) -> bool:
    """Equal on all ranks, and not by chance: its values vary."""
    stats = [tensor.stats for tensor in tensors]
    return same(stats) and stats[0].get("min") != stats[0].get("max")


@world_rule("partial-results-used", severity="error", phase="forward", explains=("replicas-drift",))
def partial_results(world: World) -> Iterator[Finding]:
    """The ranks compute one model together on the same input (tensor parallel), yet each gets a different loss:
    somewhere a rank continues with its own part of a result, which should have been summed over the ranks.

    The finding names the first op that combines a tensor that differs between the ranks with one that all of them
    share: a residual connection, or a layer whose weights are not split. Silent if gradients are reduced over the
    ranks: then each rank may have a part of the data.
    """
    rows = aligned(world)
    loss = world.first.first.loss if world.first.first is not None else None
    if not world.together or not world.same_inputs or world.replicas or world.reduced or loss is None:
        return
    if loss >= len(rows) or not differ([op.outputs[0].stats for op in rows[loss] if op.outputs]):
        return
    if parted_by_data(rows, loss) is not None:
        return
    for ops in rows[: loss + 1]:
        columns = [_column(ops, k) for k in range(len(ops[0].inputs))]
        own = [
            c
            for c in columns
            if c
            and not c[0].name
            and c[0].requires_grad
            and not _of_weights(rows, c[0])
            and differ([t.stats for t in c])
        ]
        if own and any(_shared(c) and (c[0].name or c[0].requires_grad) for c in columns if c and c is not own[0]):
            made = own[0][0].producer
            at = rows[made][0] if made is not None and made < len(rows) else ops[0]
            yield world.first.finding(
                f"Each rank continues with its own part of the output of {at.module or at.op}: it is not summed over the ranks",
                f"The output of a layer whose input features are split (row parallel) is a sum over all ranks: all_reduce it before it is combined with anything that the ranks share, here at {ops[0].source}.",
                at=at,
                evidence={"norms": [tensor.stats.get("norm") for tensor in own[0]], "used_by": ops[0].site},
                confidence=0.9,
            )
            return


def _of_weights(rows: list[tuple[OpRecord, ...]], tensor: TensorFact) -> bool:
    """Made of parameters alone, as a transposed weight is."""
    made = rows[tensor.producer][0] if tensor.producer is not None and tensor.producer < len(rows) else None
    return made is not None and bool(made.inputs) and all(one.name or _of_weights(rows, one) for one in made.inputs)


@world_rule("targets-differ", severity="error", phase="data", explains=("replicas-drift",))
def different_targets(world: World) -> Iterator[Finding]:
    """The ranks compute one model together on the same input and get the same output, but compare it with different
    data on each rank: their losses differ, and so do the gradients of everything that they hold together.
    """
    rows = aligned(world)
    loss = world.first.first.loss if world.first.first is not None else None
    if not world.together or not world.same_inputs or world.replicas or world.reduced or loss is None:
        return
    if loss >= len(rows) or not differ([op.outputs[0].stats for op in rows[loss] if op.outputs]):
        return
    found = parted_by_data(rows, loss)
    if found is not None:
        op, at = found
        yield world.first.finding(
            f"The ranks compute one model together, and compare its output with different data: input {at} of {op.op} differs between them",
            "Inputs and targets of a batch must be the same on all ranks that compute one model: send both from one rank (dist.broadcast), or read them with the "
            "same seed on all of them.",
            at=op,
            evidence={"input": at, "shape": list(op.inputs[at].shape)},
            confidence=0.9,
        )


@world_rule("held-differently", severity="error", phase="init", explains=("replicas-drift",))
def held_differently(world: World) -> Iterator[Finding]:
    """The ranks compute one model together on the same input. After the last result that is the same on all of them,
    a layer has different weights on each rank: nothing combines its outputs, and each rank gets a different loss. A
    layer that is not split must be the same on all ranks.
    """
    rows = aligned(world)
    loss = world.first.first.loss if world.first.first is not None else None
    if not world.together or not world.same_inputs or world.replicas or world.reduced or loss is None:
        return
    if loss >= len(rows) or not differ([op.outputs[0].stats for op in rows[loss] if op.outputs]):
        return
    used = leads_to(tuple(ops[0] for ops in rows), loss)
    shared = {
        k
        for k in used
        if rows[k][0].outputs
        and rows[k][0].outputs[0].requires_grad
        and _shared([op.outputs[0] for op in rows[k] if op.outputs])
    }
    for k in sorted(used):
        ops = rows[k]
        columns = [_column(ops, at) for at in range(len(ops[0].inputs))]
        own = [c for c in columns if c and c[0].name in world.weights and differ([t.stats for t in c])]
        common = [c for c in columns if c and not c[0].name and c[0].producer in shared and c[0].requires_grad]
        if own and common and k > max(shared, default=-1):
            name = own[0][0].name
            fact = world.first.facts.parameters.get(name)
            yield world.first.finding(
                f"{name} is not split over the ranks, but each rank has different values of it: the ranks get different losses for the same input",
                "Initialize what all ranks hold with the same seed on all of them, and what is split with one seed per rank; or send it from rank 0 (dist.broadcast).",
                site=f"{name}:value",
                source=(fact.filled or fact.made if fact is not None else None) or ops[0].source,
                evidence={"norms": [t.stats.get("norm") for t in own[0]], "used_at": str(ops[0].source)},
                confidence=0.9,
            )
            return


@world_rule("bias-added-on-every-rank", severity="error", phase="forward")
def summed_bias(world: World) -> Iterator[Finding]:
    """A layer is split over the ranks and its bias is not: each rank adds the whole bias to its part of the result,
    so the sum over the ranks contains it as often as there are ranks.

    In the first step, the weight differs between the ranks, the bias and its gradient do not, and the next op turns
    differing tensors into one that is the same on all ranks.
    """
    rows = aligned(world)
    for ops in rows:
        op = ops[0]
        if op.op not in ("linear", "addmm", "conv1d", "conv2d", "conv3d") or len(op.inputs) < 3:
            continue
        weights = [t.name for t in op.inputs if t.name and len(t.shape) > 1]
        biases = [t.name for t in op.inputs if t.name and len(t.shape) == 1]
        if not weights or not biases or any(name not in world.weights for name in (weights[0], biases[0])):
            continue
        weight, bias = world.weights[weights[0]], world.weights[biases[0]]
        raw = [record.raw for record in bias]
        split = differ([record.before for record in weight]) and differ([record.raw for record in weight])
        whole = same([record.before for record in bias]) and same(raw) and raw[0].get("norm", 0.0) > 0
        if split and whole and _reduced(rows, ops):
            yield world.first.finding(
                f"The bias of {op.module or biases[0]} is added on each of the {world.size} ranks before their results are summed",
                "Add the bias after the reduction, once: `reduce(F.linear(x, weight)) + bias`.",
                at=op,
                evidence={"bias": biases[0], "weight": weights[0], "norm_of_gradient": [r.get("norm") for r in raw]},
                confidence=0.9,
            )
            return


def _reduced(rows: list[tuple[OpRecord, ...]], ops: tuple[OpRecord, ...]) -> bool:
    """What this op gives differs between the ranks, and one that takes it gives the same on all of them."""
    if not differ([op.outputs[0].stats for op in ops if op.outputs]):
        return False
    return any(
        any(tensor.producer == ops[0].index for tensor in later[0].inputs)
        and all(op.outputs for op in later)
        and same([op.outputs[0].stats for op in later])
        for later in rows[ops[0].index + 1 :]
    )


@world_rule("gathered-without-gradient", severity="warning", phase="forward")
def without_gradient(world: World) -> Iterator[Finding]:
    """A rank gathers features of all ranks with `all_gather`, which has no gradient, and its own copy among them
    enters the loss: there, the features that the rank has just computed get no gradient.

    In the first step, a tensor that no op has made, and that requires no gradient, has the digest of one that an op
    has made and that requires one.
    """
    case = world.first
    trace = case.first
    gathers = [one for one in case.facts.collectives if one.op.startswith("all_gather") and not one.scalar]
    lines = {(one.line.file, one.line.line) for one in gathers if one.line is not None and not one.parameters}
    if trace is None or trace.loss is None or not lines:
        return
    made: dict[tuple[int, ...], list[TensorFact]] = {}
    used = leads_to(trace.ops, trace.loss)
    for op in trace.ops[: trace.loss + 1]:
        for tensor in op.inputs:
            if tensor.requires_grad or tensor.name or op.index not in used or tensor.stats.get("count", 0) < _FEW:
                continue
            if tensor.producer is not None and not trace.ops[tensor.producer].op.startswith(("zeros", "empty", "ones")):
                continue
            own = next((one for one in made.get(tensor.shape, ()) if same([one.stats, tensor.stats])), None)
            if own is not None:
                gather = next(one for one in gathers if one.line is not None)
                yield case.finding(
                    f"The rank's own features enter the loss as {gather.op} returned them, without a gradient",
                    "Replace them by the tensor that has a gradient (`parts[rank] = features`), or gather with "
                    "torch.distributed.nn.functional.all_gather, whose backward adds up the gradients of all ranks.",
                    site=op.site + ":in",
                    source=gather.line,
                    evidence={"shape": list(tensor.shape), "norm": tensor.stats.get("norm"), "used_at": str(op.source)},
                    confidence=0.9,
                )
                return
        for tensor in op.outputs:
            if tensor.requires_grad:
                made.setdefault(tensor.shape, []).append(tensor)


@world_rule("targets-without-offset", severity="error", phase="forward")
def without_offset(world: World) -> Iterator[Finding]:
    """A rank concatenates the features of all ranks, its own at the position of its rank, and its loss looks for the
    match of each of its samples among them. In the first step, the targets are the same numbers on all ranks: on all
    ranks but one, they point to samples of another rank.
    """
    traces = [case.first for case in world.cases]
    if any(trace is None or trace.loss is None for trace in traces) or len(traces) < world.size:
        return
    places = [_own_part(trace.ops, world.size) for trace in traces if trace is not None]
    losses = [_loss(trace.ops, trace.loss) for trace in traces if trace is not None and trace.loss is not None]
    if places != list(range(world.size)) or any(loss is None for loss in losses):
        return
    loss = losses[0]
    if loss is None:
        return
    shapes = {one.inputs[0].shape for one in losses if one is not None}
    targets = [one.inputs[1] for one in losses if one is not None]
    rows, columns = next(iter(shapes)) if len(shapes) == 1 else (0, 0)
    if columns != world.size * rows or not _shared(targets) or targets[0].stats.get("max", rows) >= rows:
        return
    made = targets[0].producer
    trace = traces[0]
    yield world.first.finding(
        f"All {world.size} ranks have the same targets, 0 to {rows - 1}, but each chooses from the concatenated features of all ranks",
        "In the concatenated features, the samples of a rank come after those of the ranks before it: add `rank * len(batch)` to the targets.",
        at=trace.ops[made] if made is not None and trace is not None and made < len(trace.ops) else loss,
        evidence={"scores": [rows, columns], "own_part": places},
        confidence=0.9,
    )


def _own_part(ops: tuple[OpRecord, ...], size: int) -> int | None:
    """At which place an op that puts one tensor of each rank in a row has the one with a gradient: the rank's own."""
    for op in ops:
        parts = [tensor.requires_grad for tensor in op.inputs]
        if op.op in ("cat", "concat") and len(parts) == size and sum(parts) == 1:
            return parts.index(True)
    return None


def _loss(ops: tuple[OpRecord, ...], loss: int) -> OpRecord | None:
    """The op of the loss that chooses one of many, among those that lead to it."""
    for k in sorted(leads_to(ops, loss)):
        if ops[k].op in ("cross_entropy", "nll_loss") and len(ops[k].inputs) > 1 and len(ops[k].inputs[0].shape) == 2:
            return ops[k]
    return None


@world_rule("words-of-other-ranks", severity="error", phase="forward")
def foreign_words(world: World) -> Iterator[Finding]:
    """The rows of an embedding are split over the ranks, each looks up the same words in its own rows, and the
    results are summed. In the first step, more than one rank adds something for the same words: a rank must give
    zeros for words that it does not hold.
    """
    rows = aligned(world) if world.together and world.same_inputs else []
    for k, ops in enumerate(rows):
        words, table = _column(ops, 0), _column(ops, 1)
        if ops[0].op != "embedding" or not words or not table:
            continue
        if not differ([one.stats for one in words]) or not differ([one.stats for one in table]):
            continue
        given, reduced = ops, False
        for later in rows[k + 1 :]:
            if not any(tensor.producer == given[0].index for tensor in later[0].inputs) or not _alike(given, later):
                continue
            reduced = same([op.outputs[0].stats for op in later])
            if reduced:
                break
            given = later
        facts = [op.outputs[0].stats for op in given]
        filled = sum(one.get("count", 0) - one.get("zero", 0) for one in facts)
        if reduced and filled > facts[0].get("count", 0):
            yield world.first.finding(
                f"Each rank looks up tokens in {ops[0].module or 'its part of an embedding'} that belong to other ranks, and adds the result to the sum over all ranks",
                "Set the result to zero for tokens of other ranks (`x.masked_fill(outside.unsqueeze(-1), 0)`) before the all-reduce.",
                at=given[0],
                evidence={
                    "elements": facts[0].get("count"),
                    "filled": [one.get("count", 0) - one.get("zero", 0) for one in facts],
                },
                confidence=0.9,
            )
            return


def _alike(ops: tuple[OpRecord, ...], later: tuple[OpRecord, ...]) -> bool:
    """Both give one tensor of the same shape, with a gradient."""
    return all(
        one.outputs and two.outputs and one.outputs[0].shape == two.outputs[0].shape and two.outputs[0].requires_grad
        for one, two in zip(ops, later, strict=True)
    )


@world_rule("computed-on-some-ranks", severity="warning", phase="forward")
def on_some_ranks(world: World) -> Iterator[Finding]:
    """The gradients of all ranks are averaged, and in the first step a line under a condition on the rank computes a
    part of the loss on some ranks only: the average contains only a part of it. Lines that ranks skip because of
    their data do not count.
    """
    if (not world.replicas and not world.reduced) or world.together:
        return
    traces = [case.first for case in world.cases]
    if any(trace is None or trace.loss is None for trace in traces):
        return
    lines = [
        {
            op.source: op
            for k in leads_to(trace.ops, trace.loss)
            if (op := trace.ops[k]).source is not None and any(one.requires_grad for one in op.outputs)
        }
        for trace in traces
        if trace is not None and trace.loss is not None
    ]
    trained = [
        {one.name for k in leads_to(trace.ops, trace.loss) for one in trace.ops[k].inputs if one.name}
        for trace in traces
        if trace is not None and trace.loss is not None
    ]
    if not set.intersection(*trained):  # a rank trains something of its own beside
        return
    for case, own in zip(world.cases, lines, strict=True):
        for source, op in sorted(own.items(), key=lambda pair: pair[1].index):
            if source is None or all(source in other for other in lines):
                continue
            condition = next((one for one in case.facts.beginning.conditions if one.line == source), None)
            if condition is not None and not any(
                _within(condition, source, other) for other in lines if other is not own
            ):
                yield case.finding(
                    f"Only rank {case.rank.rank} computes a part of its loss at {source}: the condition at line {condition.first} depends on the rank",
                    "The gradients of all ranks are averaged, so all must compute the same loss. Move the line out of the condition on the rank.",
                    at=op,
                    evidence={"condition": condition.first},
                    confidence=0.9,
                )
                return


def _within(condition: RankCondition, source: SourceLine, lines: Iterable[SourceLine | None]) -> bool:
    """Whether other ranks compute at another line of the same condition, as in its `else`."""
    return any(
        one is not None and one.file == source.file and condition.first <= one.line <= condition.last for one in lines
    )
