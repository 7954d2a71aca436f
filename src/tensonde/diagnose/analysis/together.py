"""The first step of several ranks, op by op: what they have in common, and what their loss is made of."""

from __future__ import annotations

from tensonde.diagnose.world import World
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


def leads_to(ops: tuple[OpRecord, ...], loss: int) -> set[int]:
    """The ops that the loss is made of."""
    found, todo = set(), [loss]
    while todo:
        k = todo.pop()
        if k not in found and k < len(ops):
            found.add(k)
            todo += [tensor.producer for tensor in ops[k].inputs if tensor.producer is not None]
    return found
