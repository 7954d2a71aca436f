"""Digests that a compiled graph computes by itself: reductions of its nodes, packed into one more output.

Which nodes: those that compute floating-point numbers. Views, copies and constants hold nothing new, and what the
backward graph computes again was watched in the forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tensonde.adapters.torch.compiled.names import aten_name

_aten = torch.ops.aten

VIEWS = frozenset(
    [
        "view",
        "_unsafe_view",
        "reshape",
        "permute",
        "t",
        "transpose",
        "unsqueeze",
        "squeeze",
        "expand",
        "slice",
        "select",
        "unbind",
        "split",
        "split_with_sizes",
        "chunk",
        "detach",
        "alias",
        "as_strided",
        "unfold",
        "diagonal",
        "lift_fresh_copy",
        "view_of",
        "clone",
        "copy",
        "copy_",
        "_to_copy",
        "convert_element_type",
        "full",
        "full_like",
        "empty",
        "empty_strided",
        "zeros",
        "ones",
        "zeros_like",
        "ones_like",
        "scalar_tensor",
        "iota",
        "arange",
        "eye",
        "inductor_seed",
        "inductor_seeds",
    ]
)
MOVES = frozenset(
    ["view", "unsafe_view", "reshape", "permute", "t", "transpose", "unsqueeze", "squeeze", "clone", "detach", "alias"]
)
"""Hold the same numbers as their input, as many of them."""


class Depth(IntEnum):
    """How much is known of a node: nothing, NaN/Inf and the largest magnitude, or min, max and norm."""

    NONE = 0
    LARGEST = 1
    RANGE = 2


@dataclass(frozen=True, slots=True)
class Column:
    """Where the numbers of a node stand in the packed output."""

    node: str
    first: int
    depth: Depth
    factor: float = 1.0
    """The node is this many times the one whose numbers these are."""


def watchable(gm: GraphModule, known: Iterable[str] = ()) -> list[Node]:
    """The nodes worth a digest, in execution order. `known`: names of nodes that the forward graph had as well."""
    seen = frozenset(known)
    constant: set[Node] = set()
    found = []
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            constant.add(node)
        if node.op != "call_function":
            continue
        if all(source in constant for source in node.all_input_nodes):
            constant.add(node)
            if not is_random(node):
                continue
        if node.name not in seen and _computes(node) and _countable(node.meta.get("val")):
            found.append(node)
    return found


def base(node: Node) -> Node:
    """The node that computed the numbers that this one shows in another shape."""
    while node.op == "call_function" and aten_name(node) in MOVES and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def instrument(gm: GraphModule, wanted: Sequence[tuple[Node, Depth]]) -> list[Column]:
    """Adds one output to the graph, with the numbers of these nodes."""
    graph = gm.graph
    (out,) = (node for node in graph.nodes if node.op == "output")
    packed_as = torch.int64 if any(node.meta["val"].dtype is torch.float64 for node, _ in wanted) else torch.int32
    parts: list[Node] = []
    columns: list[Column] = []
    known: dict[Node, Column] = {}
    with graph.inserting_before(out):
        for node, depth in wanted:
            source, factor = multiple(node)
            column = known.get(source)
            if column is not None and column.depth >= depth:
                columns.append(Column(node.name, column.first, column.depth, column.factor * factor))
            else:
                columns.append(Column(node.name, len(parts), depth))
                parts += [_flat(graph, number, packed_as) for number in _numbers(graph, node, depth)]
            known[node] = columns[-1]
        packed = _call(graph, _aten.cat.default, parts)
    out.args = ((*out.args[0], packed),)
    strides = out.meta.get("original_output_strides")
    if strides is not None:
        out.meta["original_output_strides"] = [*strides, (1,)]
    graph.lint()
    gm.recompile()
    return columns


def multiple(node: Node) -> tuple[Node, float]:
    """The node that this one is a constant multiple of, and the factor; itself and 1 where it is none."""
    name, args = aten_name(node), node.args
    source = base(args[0]) if args and isinstance(args[0], Node) else None
    if source is None or not all(isinstance(one.meta.get("val"), Tensor) for one in (source, node)):
        return node, 1.0
    if source.meta["val"].dtype is not node.meta["val"].dtype or node.kwargs:
        return node, 1.0
    if name == "neg":
        return source, -1.0
    if len(args) == 2 and isinstance(args[1], float | int) and not isinstance(args[1], bool) and args[1]:
        if name == "mul":
            return source, float(args[1])
        if name == "div":
            return source, 1 / args[1]
    return node, 1.0


def _numbers(graph: Any, node: Node, depth: Depth) -> list[Node]:
    """What is known of a node, as bit patterns.

    As integers, magnitudes are in order, with Inf above all numbers and NaN above Inf: one integer maximum finds all
    three, at a fraction of the cost of a maximum of floats that minds NaN. With the magnitude of negative ones turned
    over, signed numbers are in order as well.
    """
    wide = node
    if node.meta["val"].dtype in (torch.float16, torch.bfloat16):
        wide = _call(graph, torch.ops.prims.convert_element_type.default, node, torch.float32)
    bits = _bits(graph, wide)
    magnitude = torch.iinfo(bits.meta["val"].dtype).max
    if depth is Depth.LARGEST:
        return [_over_all(graph, _aten.amax.default, _call(graph, _aten.bitwise_and.Scalar, bits, magnitude))]
    sign = _call(graph, _aten.bitwise_right_shift.Tensor_Scalar, bits, magnitude.bit_length())
    turned = _call(graph, _aten.bitwise_and.Scalar, sign, magnitude)
    ordered = _call(graph, _aten.bitwise_xor.Tensor, bits, turned)
    square = _over_all(graph, _aten.sum.default, _call(graph, _aten.mul.Tensor, wide, wide))
    return [
        _over_all(graph, _aten.amin.default, ordered),
        _over_all(graph, _aten.amax.default, ordered),
        _bits(graph, square),
    ]


def _bits(graph: Any, node: Node) -> Node:
    as_integer = torch.int64 if node.meta["val"].dtype is torch.float64 else torch.int32
    return _call(graph, _aten.view.dtype, node, as_integer)


def _over_all(graph: Any, reduction: Any, node: Node) -> Node:
    return node if node.meta["val"].ndim == 0 else _call(graph, reduction, node)


def _flat(graph: Any, number: Node, dtype: torch.dtype) -> Node:
    if number.meta["val"].dtype is not dtype:
        number = _call(graph, torch.ops.prims.convert_element_type.default, number, dtype)
    return _call(graph, _aten.unsqueeze.default, number, 0)


def _call(graph: Any, target: Any, *args: Any) -> Node:
    """A new node, with the fake value that compilers expect of every node."""
    node: Node = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda source: source.meta["val"])
    mode = detect_fake_mode(values)
    if mode is None:
        node.meta["val"] = target(*values)
    else:
        with mode:
            node.meta["val"] = target(*values)
    return node


def _computes(node: Node) -> bool:
    name = aten_name(node)
    if name in VIEWS or f"_{name}" in VIEWS:
        return False
    return not str(node.target).startswith(("tensonde.", "higher_order"))


def is_random(node: Node) -> bool:
    target: Any = node.target
    named = str(target)
    return (
        "inductor_seed" in named
        or "inductor_random" in named
        or "inductor_randint" in named
        or (bool(getattr(target, "tags", None)) and torch.Tag.nondeterministic_seeded in target.tags)
    )


def _countable(value: Any) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.layout is not torch.strided:
        return False
    if value.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        return False
    return not free_unbacked_symbols(value) and not any(isinstance(size, int) and size == 0 for size in value.shape)
