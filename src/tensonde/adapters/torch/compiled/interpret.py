"""A graph run node by node, by the framework's own kernels: to step through it, to trace it, to compare with what was compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from tensonde.adapters.torch.compiled.watching import is_random

Visit = Callable[[Node, Any], None]
"""Called with each node and what it gave, while its inputs are still there."""


class NodeByNode(Interpreter):  # type: ignore[misc]
    """`visit` sees every node after it ran."""

    def __init__(self, gm: GraphModule, visit: Visit | None = None, *, keep: bool = False) -> None:
        super().__init__(gm, garbage_collect_values=not keep)
        self.extra_traceback = False
        self._visit = visit

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if self._visit is not None and n.op == "call_function":
            self._visit(n, result)
        return result

    def inputs_of(self, node: Node) -> list[Tensor]:
        """The tensors that a node was given; to be asked while it is visited."""
        values = [self.env.get(source) for source in node.all_input_nodes]
        return [value for value in values if isinstance(value, Tensor)]


def run(gm: GraphModule, args: Sequence[Any], visit: Visit | None = None) -> Any:
    """What the graph gives, without changing its inputs."""
    with torch.no_grad(), torch._C._DisableAutocast():
        return NodeByNode(gm, visit).run(*fresh(gm, args))


def results(gm: GraphModule, args: Sequence[Any]) -> list[Any]:
    """What the graph gives, and after it what it leaves in the inputs that it writes to (see `writes`)."""
    given = fresh(gm, args)
    with torch.no_grad(), torch._C._DisableAutocast():
        made = NodeByNode(gm).run(*given)
    return [*made, *(given[k] for k in writes(gm))]


def fresh(gm: GraphModule, args: Sequence[Any]) -> list[Any]:
    """The arguments, those that the graph writes to as copies."""
    written = written_inputs(gm)
    return [arg.clone() if k in written and isinstance(arg, Tensor) else arg for k, arg in enumerate(args)]


def copies(args: Sequence[Any]) -> list[Any]:
    """Copies of all arguments: a compiled backward graph also reuses what the forward pass kept for it. A copy has the same strides,
    or is none."""
    made = []
    for arg in args:
        copy = arg.detach().clone() if isinstance(arg, Tensor) else arg
        made.append(arg if isinstance(arg, Tensor) and copy.stride() != arg.stride() else copy)
    return made


def written_inputs(gm: GraphModule) -> frozenset[int]:
    """The positions of the inputs that the graph changes."""
    places = {node: k for k, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
    found = set()
    for node in gm.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "call_function" and schema is not None and schema.is_mutable:
            found |= {places[source] for source in node.all_input_nodes if source in places}
    return frozenset(found)


def writes(gm: GraphModule) -> dict[int, Node]:
    """The inputs that the graph leaves other than they were, and the node that gives each its last value."""
    places = {node: k for k, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder")}
    found: dict[int, Node] = {}
    for node in gm.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        for k, argument in enumerate(schema.arguments):
            given = node.args[k] if k < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write and given in places:
                value = node.args[1] if str(node.target) == "aten.copy_.default" else node
                computed = isinstance(value, Node) and value.op == "call_function"
                found[places[given]] = value if computed else node
    return found


def repeatable(gm: GraphModule) -> bool:
    """Whether it may run once more unseen: it neither prints nor talks to other ranks."""
    targets = [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]
    return not any(target.startswith(_EFFECTS) or "with_effects" in target for target in targets)


_EFFECTS = ("tensonde.", "_c10d_functional", "c10d", "_dtensor", "aten._print")


def has_random(gm: GraphModule) -> bool:
    """Compiled random numbers are others than the framework's own, from the same seed."""
    return any(node.op == "call_function" and is_random(node) for node in gm.graph.nodes)
