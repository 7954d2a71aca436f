"""The first step of several ranks, op by op: what they have in common, and what their loss is made of."""

from __future__ import annotations

from tensonde.diagnose.world import World, differ
from tensonde.model.trace import OpRecord


def aligned(world: World) -> list[tuple[OpRecord, ...]]:
    """The ops of the first step that all ranks have in common, from the first on: the same op at the same place."""
    traces = [case.first for case in world.cases]
    found: list[tuple[OpRecord, ...]] = []
    for ops in zip(*(trace.ops if trace is not None else () for trace in traces), strict=False):
        if len({(op.op, op.site) for op in ops}) > 1:
            break
        found.append(ops)
    return found


def parted_by_data(rows: list[tuple[OpRecord, ...]], loss: int) -> tuple[OpRecord, int] | None:
    """The op at which the ranks part on the way to their different losses, where what all of them have computed alike meets data that differ, and the number of
    that input; None where they part by what they have computed."""
    k = loss
    while k < len(rows):
        ops = rows[k]
        count = min(len(op.inputs) for op in ops)
        apart = [at for at in range(count) if differ([op.inputs[at].stats for op in ops])]
        computed = [at for at in apart if ops[0].inputs[at].requires_grad]
        if not computed:
            data = [at for at in apart if not ops[0].inputs[at].name]
            common = [one for one in ops[0].inputs if one.requires_grad]
            return (ops[0], data[0]) if data and common else None
        made = ops[0].inputs[computed[0]].producer
        if made is None or made >= k:
            return None
        k = made
    return None


def leads_to(ops: tuple[OpRecord, ...], loss: int) -> set[int]:
    """The ops that the loss is made of."""
    found, todo = set(), [loss]
    while todo:
        k = todo.pop()
        if k not in found and k < len(ops):
            found.add(k)
            todo += [tensor.producer for tensor in ops[k].inputs if tensor.producer is not None]
    return found
