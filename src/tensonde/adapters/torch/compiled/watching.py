"""Digests that a compiled graph computes by itself: reductions of its nodes, packed into a few more outputs.

Which nodes: those that compute floating-point numbers. Views, copies and constants hold nothing new, and what the
backward graph computes again was watched in the forward.
"""

from __future__ import annotations

import math
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

_GENERATED = frozenset(["sum", "mean", "var", "var_mean", "amax", "amin", "prod", "cat", "embedding", "index"])
"""Ops that a compiler writes code for, beside pointwise ones."""
_ROW = 64
"""Shorter rows are not worth a number each."""
_MOST_AS_THEY_ARE = 1 << 16
"""Numbers of a tensor that is one per row already."""


class Depth(IntEnum):
    """How much is known of a node: nothing, NaN/Inf and the largest magnitude, or min, max and norm."""

    NONE = 0
    LARGEST = 1
    RANGE = 2


@dataclass(frozen=True, slots=True)
class Column:
    """Which numbers are of a node."""

    node: str
    first: int
    """The first of its numbers, in the order of `Packing.starts`; those of a range are three, one after the other."""
    depth: Depth
    factor: float = 1.0
    """The node is this many times the one whose numbers these are."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What a watched graph gives beside its own outputs."""

    columns: list[Column]
    outputs: int
    """How many outputs more."""
    starts: list[int]
    """Where each number begins in these outputs, flat and one after the other. A number may come in parts, one for each row."""


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


def is_generated(node: Node) -> bool:
    """Whether a compiler writes code that makes or reads the values of this node, to which a reduction can be added."""
    return _has_code(node) or any(
        is_generated(user) if aten_name(user) in MOVES else _has_code(user)
        for user in node.users
        if user.op == "call_function"
    )


def _has_code(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or aten_name(node) in _GENERATED


def instrument(gm: GraphModule, wanted: Sequence[tuple[Node, Depth]]) -> Packing:
    """Adds outputs to the graph, with the numbers of these nodes.

    Numbers whose sizes differ in the first at most are packed into one output. Reductions keep their dimensions, because
    the compiler writes a reduction to its place in the pack, but copies a view of one there.
    """
    graph = gm.graph
    (out,) = (node for node in graph.nodes if node.op == "output")
    packs: dict[tuple[Any, ...], list[tuple[int, Node]]] = {}
    columns: list[Column] = []
    known: dict[Node, Column] = {}
    count = 0
    with graph.inserting_before(out):
        for node, depth in wanted:
            source, factor = multiple(node)
            column = known.get(source)
            if column is not None and column.depth >= depth:
                columns.append(Column(node.name, column.first, column.depth, column.factor * factor))
            else:
                columns.append(Column(node.name, count, depth))
                for number in _numbers(graph, node, depth):
                    value = number.meta["val"]
                    packs.setdefault((value.dtype, *value.shape[1:]), []).append((count, number))
                    count += 1
            known[node] = columns[-1]
        packed = [_flat(graph, _call(graph, _aten.cat.default, [n for _, n in parts])) for parts in packs.values()]
    out.args = ((*out.args[0], *packed),)
    strides = out.meta.get("original_output_strides")
    if strides is not None:
        out.meta["original_output_strides"] = [*strides, *((1,) for _ in packed)]
    graph.lint()
    gm.recompile()
    starts, at = [0] * count, 0
    for parts in packs.values():
        for number, part in parts:
            starts[number] = at
            at += part.meta["val"].numel()
    return Packing(columns, len(packed), starts)


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
    """What is known of a node: the largest magnitude, which NaN and Inf go through; or minimum, maximum and sum of squares."""
    wide = node
    if node.meta["val"].dtype in (torch.float16, torch.bfloat16):
        wide = _call(graph, torch.ops.prims.convert_element_type.default, node, torch.float32)
    if depth is Depth.LARGEST:
        return [_reduced(graph, _aten.amax.default, _call(graph, _aten.abs.default, wide))]
    square = _call(graph, _aten.mul.Tensor, wide, wide)
    return [
        _reduced(graph, _aten.amin.default, wide),
        _reduced(graph, _aten.amax.default, wide),
        _reduced(graph, _aten.sum.dim_IntList, square),
    ]


def _reduced(graph: Any, reduction: Any, node: Node) -> Node:
    """As many dimensions as before; a number gets one, because only tensors of one dimension or more can be packed.

    Rows are reduced apart, and brought together when they are read: a layer norm goes through rows as well, and only loops over the
    same dimensions become one kernel. Otherwise the compiler would read everything once more.
    """
    shape = node.meta["val"].shape
    if not shape:
        return _call(graph, _aten.unsqueeze.default, node, 0)
    rows = len(shape) > 1 and all(isinstance(size, int) for size in shape)
    if rows and shape[-1] == 1 and math.prod(shape) <= _MOST_AS_THEY_ARE:
        return node
    if rows and shape[-1] >= _ROW:
        return _call(graph, reduction, node, [len(shape) - 1], True)
    return _call(graph, reduction, node, list(range(len(shape))), True)


def _flat(graph: Any, pack: Node) -> Node:
    """A backend may lay out results of four dimensions as it likes, and expect the backward pass to be given them so."""
    value = pack.meta["val"]
    return pack if value.ndim == 1 else _call(graph, _aten.view.default, pack, [value.numel()])


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
