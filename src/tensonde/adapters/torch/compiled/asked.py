"""What the program asked for, before the backend's own passes over the joint graph of forward and backward.

A backend may rewrite that graph before it is taken apart (inductor removes copies, fuses attention). The graphs that we are handed
come after that: a wrong rewriting is in them already, and compiled and uncompiled agree on it. So the forward half is kept as
AOTAutograd traced it, and the compiled call is held against that, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from tensonde.adapters.torch.compiled import interpret, verify
from tensonde.adapters.torch.compiled.rounding import Rounding, apart

Partition = Callable[..., Any]


def noting(partition: Partition, note: Callable[[GraphModule | None], None]) -> Partition:
    """The backend's partitioner, that also notes the forward half of what it is given; None where that cannot be had."""

    @functools.wraps(partition)
    def parts(joint: GraphModule, joint_inputs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            note(_forward(joint, int(kwargs["num_fwd_outputs"])))
        except Exception:
            note(None)
        return partition(joint, joint_inputs, *args, **kwargs)

    return parts


def _forward(joint: GraphModule, count: int) -> GraphModule | None:
    """The joint graph without what only the backward pass needs. A graph in a graph is rewritten in place: None."""
    if any(
        isinstance(getattr(joint, str(n.target), None), GraphModule) for n in joint.graph.nodes if n.op == "get_attr"
    ):
        return None
    graph = Graph()  # with arguments as they are in graphs that are compiled: one after the other
    given = graph.graph_copy(joint.graph, {})
    graph.output(tuple(given)[:count] if isinstance(given, tuple | list) else (given,))
    graph.eliminate_dead_code()
    for node in [node for node in graph.nodes if node.op == "placeholder" and node.name.startswith("tangents")]:
        if node.users:
            return None
        graph.erase_node(node)
    return GraphModule(joint, graph)


def fits(asked: GraphModule, plain: GraphModule) -> bool:
    """Both take the same inputs in the same order, and may be run once more."""
    first, second = ([node.name for node in gm.graph.nodes if node.op == "placeholder"] for gm in (asked, plain))
    return first == second and not interpret.has_random(asked) and interpret.repeatable(asked)


def departure(
    asked: GraphModule, plain: GraphModule, made: Sequence[Any], written: dict[int, Any], args: Sequence[Any]
) -> verify.Departure | None:
    """Where the compiled results are not those of the program; `written` are the inputs that were written to, by place."""
    right = interpret.results(asked, args)
    (out,) = (node for node in asked.graph.nodes if node.op == "output")
    places = interpret.writes(asked)
    got = [*made[: len(out.args[0])], *(written.get(k, args[k]) for k in places)]
    found = verify.first_departure(asked, right, got, args)
    return replace(_first_rewritten(asked, plain, args) or found, rewritten=True) if found is not None else None


def _first_rewritten(asked: GraphModule, plain: GraphModule, args: Sequence[Any]) -> verify.Departure | None:
    """The first node that both graphs have and that is something else in the rewritten one."""
    order = Rounding(asked, args)
    values: dict[str, Any] = {}
    interpret.run(plain, args, lambda node, value: values.__setitem__(node.name, _own(value)))
    for node in asked.graph.nodes:
        right, got = order.values.get(node.name), values.get(node.name)
        if _is_write(node) or not isinstance(right, Tensor) or not isinstance(got, Tensor):
            continue
        if right.shape != got.shape or right.dtype != got.dtype:
            continue  # the name was taken over by something else
        gap = apart(right, got)
        if gap.distance > verify.TOLERANCE.get(right.dtype, 0.0) and not order.explains(node, gap):
            return verify.Departure(node.name, gap.distance, gap.largest, exact=False)
    return None


def _is_write(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _own(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
