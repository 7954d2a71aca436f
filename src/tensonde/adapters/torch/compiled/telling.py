"""Which nodes of a graph tell of all NaN and Inf in it, so that the others need no digest.

What an op of the program gives always has one. A step inside of an op has one only where NaN or Inf could get lost before the
op's result: `x * x` before `exp(-x * x)`, the variance before `rsqrt`. In `x - mean`, it cannot.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from torch import Tensor
from torch.fx import Node

from tensonde.adapters.torch.compiled.names import NodeName, aten_name
from tensonde.adapters.torch.compiled.watching import MOVES, base, multiple

_PASSING = frozenset(
    ["add", "sub", "rsub", "mul", "neg", "abs", "sqrt", "log", "sum", "mean", "var", "var_mean", "convert_element_type", "to_copy", "expand", "cat"]
)  # fmt: skip
"""Where NaN or Inf in any input is NaN or Inf in the result."""


def telling(
    nodes: Sequence[Node], names: Mapping[Node, NodeName], *, backward: bool, always: Container[str] = ()
) -> frozenset[str]:
    """The names of those of `nodes`, in execution order, that tell of all of them; `always`: names of others that are seen anyhow."""
    possible = frozenset(nodes)
    wanted = _leaving(names) if backward else _whole(names)
    graded = _of_gradients(nodes) if backward else frozenset()
    found: set[Node] = set()
    told: set[Node] = set()
    for node in reversed(nodes):
        if node.name in always or (node in wanted and not _put_together(node, possible & wanted)):
            found.add(node)
        elif _repeats(node, possible) or (backward and node not in graded):
            continue
        elif any(user in found or user in told for user in _passing_on(node)):
            told.add(node)
        else:
            found.add(node)
    return frozenset(node.name for node in found)


def _whole(names: Mapping[Node, NodeName]) -> set[Node]:
    """What ops of the function API and modules give."""
    return {base(node) for node, name in names.items() if name.whole or name.modules}


def _leaving(names: Mapping[Node, NodeName]) -> set[Node]:
    """What the backward of one op hands to that of another."""
    return {
        base(node)
        for node, name in names.items()
        if any(user in names and _call(names[user]) != _call(name) for user in node.users)
    }


def _of_gradients(nodes: Sequence[Node]) -> frozenset[Node]:
    """What is computed of incoming gradients. The rest of a backward graph are functions of values that the forward watched."""
    found: set[Node] = set()
    for node in nodes[0].graph.nodes if nodes else ():
        if (node.op == "placeholder" and node.name.startswith("tangents")) or not found.isdisjoint(
            node.all_input_nodes
        ):
            found.add(node)
    return frozenset(found)


def _call(name: NodeName) -> tuple[str, str, str]:
    return name.module, name.op, name.name.rpartition("#")[2]


def _put_together(node: Node, known: frozenset[Node]) -> bool:
    """Nothing but values that are known, side by side."""
    return aten_name(node) == "cat" and all(base(source) in known for source in node.all_input_nodes)


def _repeats(node: Node, possible: frozenset[Node]) -> bool:
    """A multiple of another node, no larger than that."""
    source, factor = multiple(node)
    return source is not node and abs(factor) <= 1 and source in possible


def _passing_on(node: Node) -> Iterator[Node]:
    """The nodes that are NaN or Inf where this one is."""
    for user in node.users:
        if user.op != "call_function":
            continue
        name, value = aten_name(user), user.meta.get("val")
        if name in MOVES:
            yield from _passing_on(user)
        elif name in _PASSING or (name == "div" and user.args[0] is node):
            if isinstance(value, tuple | list):
                yield from user.users
            elif isinstance(value, Tensor) and value.is_floating_point():
                yield user
                if multiple(user)[0] is not user:  # it has no digest of its own
                    yield from _passing_on(user)
