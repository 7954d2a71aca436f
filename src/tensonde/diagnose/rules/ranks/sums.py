"""What ranks that compute one model together add up: each must give its own part, of the same batch."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.together import aligned
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World, same, same_in_step
from tensonde.model.facts import CollectiveFact, Drawn
from tensonde.model.finding import Finding
from tensonde.model.site import Kind, Role, Site, SourceLine
from tensonde.program.lines import source_line


def _sums(world: World, *, backward: bool) -> Iterator[tuple[CollectiveFact, ...]]:
    """The lines that add up tensors of all ranks in a forward or backward pass, as each rank has seen them."""
    for one in world.first.facts.collectives:
        if one.op != "all_reduce" or one.reduce != "SUM" or one.group_size != world.size or one.backward != backward:
            continue
        if not one.given or one.divided or one.gradients or one.parameters or one.copies:
            continue
        others = [
            next((c for c in case.facts.collectives if (c.op, c.group, c.line) == (one.op, one.group, one.line)), None)
            for case in world.cases[1:]
        ]
        found = [other for other in others if other is not None]
        if len(found) == len(others):
            yield (one, *found)


def _alike(row: tuple[CollectiveFact, ...]) -> bool:
    """Every rank gives the same, and not by chance: its elements vary."""
    return all(row[0].given) and all(one.given == row[0].given for one in row[1:])


@world_rule("shards-begin-alike", severity="error", phase="init", explains=("shared-gradient-summed",))
def begin_alike(world: World) -> Iterator[Finding]:
    """The ranks compute one model together (tensor parallel) and sum their parts of a result, and in the first step
    all of them compute the same part: their shards were drawn with the same random numbers. The model has each hidden
    unit as often as there are ranks.

    Equal shards get equal gradients, so they stay equal.
    """
    if world.replicas or world.reduced or not world.same_inputs:
        return
    row = next((row for row in _sums(world, backward=False) if _alike(row)), None)
    names = _behind_sum(world) if row is not None else []
    if row is None or not names:
        return
    case = world.first
    drawn = {one.name: one for one in case.facts.beginning.drawn}
    made = [drawn[name] for name in names if name in drawn]
    fact = case.facts.parameters.get(names[0])
    yield case.finding(
        f"All {world.size} ranks start with the same shards: {some(names, 3)} are equal on them, and their outputs are summed at {row[0].line}",
        "Initialize the shards with different random numbers on each rank (a generator with the seed `seed + rank`), or initialize the whole weight on every rank and take the rank's part of it.",
        site=f"{names[0]}:value",
        source=_drawn_at(made) or (fact.filled or fact.made if fact is not None else None),
        evidence={"parameters": names[:8], "summed_at": str(row[0].line)},
        confidence=0.9,
    )


def _drawn_at(made: list[Drawn]) -> SourceLine | None:
    """The generator that several of them come from, or the line of the first."""
    generators = [one.generator for one in made if one.generator is not None]
    return generators[0] if generators else next((one.line for one in made if one.line is not None), None)


def _behind_sum(world: World) -> list[str]:
    """The parameters that the first sum of the first step is made of, back to tensors that were made before: equal on all ranks, and drawn."""
    rows = aligned(world)
    for ops in rows:
        op = ops[0]
        if len(op.inputs) != 1 or not op.outputs or op.inputs[0].producer is None:
            continue
        norms = [op.inputs[0].stats.get("norm", 0.0), op.outputs[0].stats.get("norm", 0.0)]
        if norms[0] <= 0 or abs(norms[1] - world.size * norms[0]) > 1e-5 * norms[1]:
            continue
        found: dict[str, None] = {}
        todo, seen = [op.inputs[0].producer], set[int]()
        while todo:
            k = todo.pop()
            if k in seen or k >= len(rows) or len(seen) > 64:
                continue
            seen.add(k)
            for tensor in rows[k][0].inputs:
                if tensor.name in world.weights and len(tensor.shape) > 1:
                    found[tensor.name] = None
                if tensor.producer is not None:
                    todo.append(tensor.producer)
        return [name for name in found if _equal_and_drawn(world, name)]
    return []


def _equal_and_drawn(world: World, name: str) -> bool:
    before = [record.before for record in world.weights[name]]
    return same(before) and before[0].get("min") != before[0].get("max")


@world_rule("shared-gradient-summed", severity="error", phase="backward")
def shared_gradient(world: World) -> Iterator[Finding]:
    """A backward pass sums a gradient over the ranks that is already the same on all of them in the first step, such
    as the gradient of a result that every rank has: the sum is too large by the number of ranks.

    Only the gradient of a tensor that each rank uses for a different part of the model should be summed over the
    ranks.
    """
    if world.replicas or world.reduced:
        return
    for row in _sums(world, backward=True):
        if _alike(row):
            yield world.first.finding(
                f"A gradient that is the same on all {world.size} ranks is summed over them: it becomes {world.size} times too large",
                "If every rank has the whole result, every rank has its whole gradient: take the rank's part of it and sum nothing. Sum only the gradients of what the ranks use for different parts of the model.",
                source=_written(world, row[0]),
                evidence={"calls": row[0].count, "inputs": row[0].given[:4]},
                confidence=0.9,
            )
            return


def _written(world: World, sums: CollectiveFact) -> SourceLine | None:
    """Where the backward pass is a library's, its line is that of `backward()`: the only sum of the forward pass is the one that it belongs to."""
    optimizer = next(iter(world.first.stepping), None)
    forward = {row[0].line for row in _sums(world, backward=False)}
    if optimizer is not None and sums.line == optimizer.backward_line and len(forward) == 1:
        return forward.pop()
    return sums.line


@world_rule("parts-of-different-batches", severity="error", phase="data", explains=("replicas-drift",))
def different_batches(world: World) -> Iterator[Finding]:
    """The ranks hold parts of one model and sum their outputs (tensor parallel), but in every step each rank has a
    different input and a different loss: the sum mixes results for different samples.

    Silent if gradients or weights are combined over the ranks, because then each rank may have its share of the data,
    and if the losses are equal, because then each rank may have other features of the same samples.
    """
    if world.replicas or world.reduced or world.sharded or world.averaged:
        return
    row = next(iter(_sums(world, backward=False)), None)
    inputs = [site for site in world.first.sites.values() if _is_root_input(world, site)]
    losses = list(world.common("loss:value"))
    if row is None or not inputs or not losses or any(same_in_step(rows) for _, rows in losses):
        return
    steps = list(world.common(inputs[0].address))
    if not steps or any(same_in_step(rows) for _, rows in steps):
        return
    if all(same([record.before for record in records]) for records in world.weights.values()):
        return  # no rank has a part
    case = world.first
    loader = next((loader for loader in case.facts.loaders if loader.steps), None)
    yield case.finding(
        f"Each rank computes its part of the model for a different batch, and the parts are summed at {row[0].line}",
        "All ranks that compute one model together need the same batch: give their data the same seed, give the sampler the number of the data-parallel "
        "group instead of the rank, or send the batch of one rank to the others (dist.broadcast).",
        site=inputs[0].address,
        source=(loader.made if loader is not None else None) or _parting(world, row[0]) or inputs[0].source,
        evidence={"steps": [step for step, _ in steps][:8], "summed_at": str(row[0].line)},
        confidence=0.9,
    )


def _is_root_input(world: World, site: Site) -> bool:
    return site.kind is Kind.MODULE and site.role is Role.IN and site.name in set(world.first.facts.roots)


def _parting(world: World, sums: CollectiveFact) -> SourceLine | None:
    """The loop around the sum whose data depend on the rank."""
    for call in world.standings[0].calls if world.standings else ():
        if call.kind.source == sums.line:
            for block in reversed(call.kind.around):
                if block["what"] == "for" and block.get("parting"):
                    return source_line(block["file"], int(block["parting"]))
    return None
