"""Random numbers that must agree between the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World, differ, same
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord

_RANDOM = ops(Trait.RANDOM)


@world_rule("random-numbers-differ", severity="error", phase="forward", explains=("replicas-drift",))
def random_numbers(world: World) -> Iterator[Finding]:
    """The ranks compute one model together on the same input (tensor parallel), and an op that draws random numbers,
    such as dropout, has the same input on all ranks but a different output on each. What follows is no longer the
    same model on all of them.

    The ops of the first step are compared one by one. If an input differs, as inside a region that is split, the
    ranks may draw what they like.
    """
    traces = [case.first for case in world.cases]
    if any(trace is None for trace in traces) or not world.same_inputs or not world.together:
        return
    each = [trace.ops for trace in traces if trace is not None]
    for ops_ in zip(*each, strict=False):
        if len({(op.op, op.site) for op in ops_}) > 1:
            return  # the ranks do not compute alike
        if ops_[0].op in _RANDOM and _parts(list(ops_)):
            op = ops_[0]
            yield world.first.finding(
                f"{op.op} draws different random numbers on each rank, although its input is the same on all of them",
                "All ranks must draw the same numbers outside the split regions: use the same seed, and a separate generator for what may differ.",
                at=op,
                evidence={
                    "input": op.inputs[0].stats.get("norm"),
                    "outputs": [one.outputs[0].stats.get("norm") for one in ops_],
                },
                confidence=0.9,
            )
            return


def _parts(ops_: list[OpRecord]) -> bool:
    first = ops_[0]
    given = [
        [op.inputs[k].stats for op in ops_] for k in range(len(first.inputs)) if all(len(op.inputs) > k for op in ops_)
    ]
    made = [op.outputs[0].stats for op in ops_ if op.outputs]
    return bool(given) and all(same(column) for column in given) and len(made) == len(ops_) and differ(made)
