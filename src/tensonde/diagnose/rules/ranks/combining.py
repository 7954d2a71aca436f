"""What the ranks make of their gradients: the mean over all of them is what data-parallel training is about."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.mixing import Mix, is_mean, mixes
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World
from tensonde.model.facts import CollectiveFact
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine

_CLOSE = 1e-3
_ROUNDED = 5e-3
"""Of a factor, where gradients are sent as float16."""


@world_rule(
    "rank-left-out",
    severity="error",
    phase="optimizer",
    explains=("parameter-not-in-optimizer",),
)
def left_out(world: World) -> Iterator[Finding]:
    """A parameter is the same on all ranks, before and after the first step, and each rank computes its own gradient
    for it, from its own data. What the optimizer gets contains nothing of the gradient of some ranks: it was sent to
    a rank other than the one that steps, or replaced by one rank's gradient.

    Sketches of what each rank has computed show what the gradient is the sum of.
    """
    if world.together:
        return
    table = {name: ranks for name, mix in mixes(world).items() if (ranks := _missing(mix))}
    if not table:
        return
    name, ranks = next(iter(table.items()))
    yield world.first.finding(
        f"{some(list(table), 3)} {'is' if len(table) == 1 else 'are'} stepped without the gradient of rank {some([str(one) for one in ranks], 8)}, "
        "though every rank computes one from its own data",
        "The optimizer of the rank that steps a parameter must get the sum or the mean of all ranks: use dist.all_reduce, or reduce to the rank that "
        "steps it (`dst` must be the owner by the same rule as in the optimizer).",
        site=f"{name}:grad",
        source=_combining(world, name),
        evidence={
            "parameters": list(table)[:8],
            "without": {key: list(value) for key, value in list(table.items())[:8]},
        },
        confidence=0.95,
    )


@world_rule("last-pass-only", severity="error", phase="optimizer")
def last_only(world: World) -> Iterator[Finding]:
    """A step has several backward passes, and the optimizer gets the mean over the ranks of what the last one
    computed: the others are lost on the way.
    """
    names = [name for name, mix in mixes(world).items() if mix.last]
    if names:
        yield world.first.finding(
            f"Only the last backward pass of a step counts: the gradients of {some(names, 3)} contain nothing from the others",
            "Accumulate gradients over all micro-batches (clear them once per step) and reduce the sum.",
            site=f"{names[0]}:grad",
            source=_combining(world, names[0]),
            evidence={"parameters": names[:8]},
            confidence=0.9,
        )


@world_rule("combined-unevenly", severity="warning", phase="optimizer")
def uneven(world: World) -> Iterator[Finding]:
    """Of the gradients of one model, some are the mean over the ranks and some the sum: those parameters train with a
    different learning rate.
    """
    if world.together:
        return
    table = {name: mix.factor for name, mix in mixes(world).items() if mix.factor is not None and not mix.last}
    least = min(table.values(), default=0.0)
    more = [name for name, factor in table.items() if abs(factor - world.size * least) <= _CLOSE * factor]
    less = [name for name, factor in table.items() if abs(factor - least) <= _CLOSE * factor]
    if least > 0 and more and less and len(more) + len(less) == len(table):
        yield world.first.finding(
            f"The gradients of {some(more, 3)} are summed over the ranks, those of {some(less, 3)} are averaged",
            "Treat all gradients the same way: divide each once by the number of ranks.",
            site=f"{more[0]}:grad",
            source=_combining(world, more[0]),
            evidence={"factors": dict(list(table.items())[:16])},
            confidence=0.9,
        )


@world_rule("gradients-summed-over-ranks", severity="warning", phase="optimizer")
def summed(world: World) -> Iterator[Finding]:
    """In the first step, the optimizers get the sum of the gradients that the ranks have computed, and each rank's
    loss is a mean over its own batch: the update is that of the global batch times the number of ranks. A
    communication hook of DistributedDataParallel replaces its averaging, so it counts as well.
    """
    case = world.first
    name = _all_times(world, float(world.size))
    if name is None or world.together or not is_mean(case):
        return
    hooked = any(one.hooked for one in world.replicas)
    collective = _collective(world, name)
    line = _combining(world, name)
    yield case.finding(
        f"Gradients are summed over {world.size} ranks at {line} and not divided: the step is {world.size} times too large",
        "A hook of `register_comm_hook` replaces the averaging of DistributedDataParallel: divide the bucket by the number of ranks before or after the all_reduce."
        if hooked
        else f"Divide by the number of ranks after the reduction (`p.grad /= {world.size}`; dist.get_world_size() tells it), or reduce with dist.ReduceOp.AVG.",
        site=f"{name}:grad",
        source=(collective.after if collective is not None else None) or line,
        evidence={"times_the_mean": world.size},
        confidence=0.85,
    )


@world_rule("averaged-twice", severity="warning", phase="optimizer")
def averaged_twice(world: World) -> Iterator[Finding]:
    """In the first step, the optimizers get the mean over the ranks divided once more by the number of ranks, for
    every parameter, after one backward pass from a plain mean over a batch; nothing clips or scales.
    """
    case = world.first
    name = _all_times(world, 1 / world.size)
    if name is None or not is_mean(case) or case.facts.clipping.calls or case.facts.clipping.scaled_losses:
        return
    optimizer = next(iter(case.stepping), None)
    yield case.finding(
        f"Gradients are divided by the number of ranks ({world.size}) although DistributedDataParallel has averaged them"
        if world.replicas
        else f"Gradients are divided by the number of ranks ({world.size}) twice",
        f"Remove one division: with it, steps are {world.size} times too small.",
        site=None,
        source=case.facts.beginning.rewrite or (optimizer.step_line if optimizer is not None else None),
        evidence={"times_the_mean": 1 / world.size},
        confidence=0.85,
    )


def _all_times(world: World, factor: float) -> str | None:
    """One of the parameters, if the gradients of all are so many times the mean over the ranks, after one backward pass."""
    table = mixes(world)
    wrong = [
        name
        for name, mix in table.items()
        if mix.factor is not None and mix.passes == 1 and abs(mix.factor - factor) <= _ROUNDED * factor
    ]
    return wrong[0] if wrong and len(wrong) == len(table) else None


def _missing(mix: Mix) -> tuple[int, ...]:
    """Ranks whose gradient is not in it."""
    most = max(map(abs, mix.shares or (0.0,)))
    return tuple(k for k, share in enumerate(mix.shares or ()) if abs(share) <= _CLOSE * most)


def _combining(world: World, name: str) -> SourceLine | None:
    """The line that brings the gradients of this parameter together; of others, where none does; else the step."""
    one = _collective(world, name)
    optimizer = next(iter(world.first.stepping), None)
    return one.line if one is not None else optimizer.step_line if optimizer is not None else None


def _collective(world: World, name: str) -> CollectiveFact | None:
    found = world.first.facts.collectives
    own = [one for one in found if name in one.gradients or name in one.copies]
    any_ = [one for one in found if one.gradients or one.copies]
    large = [one for one in found if "reduce" in one.op and not one.scalar and one.first_step == 0]
    return next((one for one in (*own, *any_, *large) if one.line is not None), None)
