"""Whether the compiler's result is the graph's: a call is also made node by node, and both are compared.

Outputs, what is kept for the backward pass and what is written to inputs (buffers) are compared at once. Where they part by more than rounding explains,
the nodes that lead to the first bad one are compiled in part, to find the first node whose compiled result departs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tensonde.adapters.torch.compiled import interpret
from tensonde.adapters.torch.compiled.rounding import Rounding, apart
from tensonde.adapters.torch.compiled.watching import base, is_random

Compiler = Callable[[GraphModule, Sequence[Any]], Any]

MOST_BYTES = 1 << 30
"""Outputs of one graph that are compared."""
MOST_PARTS = 16
"""Up to this many parts of a graph are compiled one by one; more are halved."""
TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-2, torch.bfloat16: 0.2, torch.float16: 0.1}
"""Relative distance (of norms) beyond which rounding and reordering explain nothing; far above what compilers do."""


@dataclass(frozen=True, slots=True)
class Departure:
    """`node` is the first whose compiled result is not the graph's. `exact`: it was found by compiling parts of the graph.
    `rewritten`: it is a node of the graph before the backend's own passes, which made something else of it."""

    node: str
    distance: float
    max_abs: float
    exact: bool
    rewritten: bool = False


@dataclass(slots=True)
class Tally:
    """The calls of one step that were compared: how many departed, and how far apart the furthest of the others was."""

    calls: int = 0
    departed: int = 0
    furthest: float = 0.0

    def add(self, distance: float, departure: Departure | None) -> None:
        self.calls += 1
        if departure is not None:
            self.departed += 1
        else:
            self.furthest = max(self.furthest, distance)


def affordable(plain: GraphModule, *, random: bool) -> bool:
    """Random numbers differ between compiler and framework, a print must not come twice, and memory is needed for all
    outputs once more."""
    if random or not interpret.repeatable(plain):
        return False
    values = [node.meta.get("val") for node in _resulting(plain) if isinstance(node, Node)]
    sizes = [value.numel() * value.element_size() for value in values if isinstance(value, Tensor)]
    return all(isinstance(size, int) for size in sizes) and sum(sizes) <= MOST_BYTES


def first_departure(
    plain: GraphModule, expected: Sequence[Any], made: Sequence[Any], args: Sequence[Any]
) -> Departure | None:
    """The first result in execution order that is not what it should be; `expected` and `made` are as of `interpret.results`.
    `args` are the inputs, as they were before the calls."""
    order = {node: k for k, node in enumerate(plain.graph.nodes)}
    suspects = []
    for node, right, got in zip(_resulting(plain), expected, made, strict=False):
        if isinstance(node, Node) and isinstance(right, Tensor) and isinstance(got, Tensor):
            gap = apart(right, got)
            if gap.distance > TOLERANCE.get(right.dtype, 0.0):
                suspects.append((order[node], node, gap))
    if not suspects:
        return None
    noise = Rounding(plain, args)
    for _, node, gap in sorted(suspects, key=lambda one: one[0]):
        if not noise.explains(node, gap):
            whose = base(node) if base(node).op == "call_function" else node  # a view is not to blame
            return Departure(whose.name, gap.distance, gap.largest, exact=False)
    return None


def _resulting(plain: GraphModule) -> list[Any]:
    """The nodes of all results: outputs, and what is written to inputs."""
    (out,) = (node for node in plain.graph.nodes if node.op == "output")
    return [*out.args[0], *interpret.writes(plain).values()]


def furthest(right: Sequence[Any], made: Sequence[Any]) -> tuple[float, float]:
    """The largest relative distance and the largest difference of any result."""
    gaps = [apart(a, b) for a, b in zip(right, made, strict=False) if isinstance(a, Tensor) and isinstance(b, Tensor)]
    return max((gap.distance for gap in gaps), default=0.0), max((gap.largest for gap in gaps), default=0.0)


def located(plain: GraphModule, departure: Departure, args: Sequence[Any], compiler: Compiler) -> Departure:
    """The first node on the way to the departing one whose result departs when the graph is compiled up to it."""
    end = next(node for node in plain.graph.nodes if node.name == departure.node)
    way = _ancestors(plain, end)
    noise = Rounding(plain, args)
    if len(way) <= MOST_PARTS:
        parts = (_departs(plain, node, args, noise, compiler) for node in way)
        return next((found for found in parts if found is not None), departure)
    low, high, best = 0, len(way) - 1, departure
    while low < high:
        middle = (low + high) // 2
        found = _departs(plain, way[middle], args, noise, compiler)
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    return best


def _departs(
    plain: GraphModule, node: Node, args: Sequence[Any], noise: Rounding, compiler: Compiler
) -> Departure | None:
    part = _up_to(plain, node)
    examples = [place.meta["val"] for place in part.graph.nodes if place.op == "placeholder"]
    run = compiler(part, examples)
    given = interpret.fresh(plain, args)
    made = run(given) if getattr(run, "_boxed_call", False) else run(*given)
    right = noise.values[node.name]
    gap = apart(right, made[0])
    if gap.distance > TOLERANCE.get(right.dtype, 0.0) and not noise.explains(node, gap):
        return Departure(node.name, gap.distance, gap.largest, exact=True)
    return None


def inductor() -> Compiler:
    """What it makes of a graph by itself, without the code around it."""
    from torch._inductor.compile_fx import compile_fx_inner

    def compiler(part: GraphModule, examples: Sequence[Any]) -> Any:
        made = compile_fx_inner(part, list(examples))

        def run(args: list[Any]) -> Any:
            return made(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return compiler


def _up_to(plain: GraphModule, last: Node) -> GraphModule:
    """The graph with `last` as its only output. What it writes to its inputs it still writes: that is part of the problem."""
    graph = copy.deepcopy(plain.graph)
    (out,) = (node for node in graph.nodes if node.op == "output")
    target = next(node for node in graph.nodes if node.name == last.name)
    out.args = ((target,),)
    graph.eliminate_dead_code()
    return GraphModule(plain, graph)


def _ancestors(plain: GraphModule, end: Node) -> list[Node]:
    """The tensors that lead to it, itself included, in execution order."""
    found, waiting = {end}, [end]
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return [
        node
        for node in plain.graph.nodes
        if node in found
        and node.op == "call_function"
        and isinstance(node.meta.get("val"), Tensor)
        and not is_random(node)
    ]
