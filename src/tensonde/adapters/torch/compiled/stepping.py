"""Stops inside a compiled call: before the call, its graph runs node by node, and every node is a place to stop, forward and backward.

That run is only to look at. It works on copies of what the graph writes to and leaves the random generators as they were; the
compiled call follows and gives the results, so a training that was stepped through has the same bits as one that was not.

Two calls take their results from the nodes instead, in the memory layout that the compiled backward pass expects: one in which
a value was set at a stop, and one that must not run twice (it prints or talks to other ranks).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from tensonde.adapters.torch.compiled.interpret import NodeByNode, fresh
from tensonde.adapters.torch.compiled.watched import CompiledGraph
from tensonde.adapters.torch.compiled.watching import base
from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import version_of
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.pattern import Pattern

log = logging.getLogger("tensonde.graph")


class Walked:
    """A call that was gone through. `made` is what the nodes gave, where that counts; `once`: the compiled call must not follow."""

    def __init__(
        self, made: Sequence[Any] | None = None, written: Sequence[tuple[Tensor, Tensor]] = (), *, once: bool = False
    ) -> None:
        self.made, self.once = made, once
        self._written = written

    def results(self, compiled: Sequence[Any]) -> Sequence[Any]:
        """What the call gives: the compiled results, or those of the nodes, laid out in memory in the same way."""
        if self.made is None:
            return compiled
        with torch.no_grad():
            for ours, theirs in self._written:
                ours.copy_(theirs)
            return [
                laid_out(one, tuple(other.stride()) if isinstance(other, Tensor) else None)
                for one, other in zip(self.made, compiled, strict=True)
            ]


def laid_out(value: Any, strides: tuple[int, ...] | None) -> Any:
    """The same numbers with these strides."""
    if not isinstance(value, Tensor) or strides is None or value.stride() == strides:
        return value
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return made.copy_(value)


class Stepping:
    def __init__(self, state: RunState, stops: Stops) -> None:
        self.state = state
        self._stops = stops
        self._told = self._told_random = False

    def wanted(self, graph: CompiledGraph) -> bool:
        """Whether a stop inside this call may be wanted."""
        stops, gate = self._stops, self._stops.gate
        if not stops.debugging or not (stops.attentive or gate.pausing):
            return False
        if gate.plan.kind in ("next", "nextop", "finish"):
            return True
        patterns = [Pattern.parse(point.sites) for point in gate.breakpoints.values() if point.sites]
        if gate.plan.kind == "until":
            patterns.append(Pattern.parse(gate.plan.sites))
        return any(pattern.matches(site) for site in _possible(graph) for pattern in patterns)

    def walk(self, graph: CompiledGraph, args: list[Any]) -> Walked:
        """Goes through the graph and stops wherever a stop is wanted."""
        self._tell(graph)
        given = args if graph.once else fresh(graph.plain, args)
        stops = self._stops
        changes, changed = stops.changes, False

        def visit(node: Node, value: Any) -> None:
            nonlocal changed
            name = graph.names[node]
            if not isinstance(value, Tensor):
                return
            stops.inside = (name.module,) if name.module else ()
            version = version_of(value)
            for site in self._sites(graph, node):
                stops.tap(site, 0)(value)
            changed |= version_of(value) != version

        before = stops.inside
        generators = nullcontext() if graph.once else torch.random.fork_rng(devices=_gpus(args))
        try:
            with torch.no_grad(), torch._C._DisableAutocast(), generators:
                made = NodeByNode(graph.plain, visit).run(*given)
        finally:
            stops.inside = before
        if graph.once:
            args.clear()
            return Walked([_in_order(*pair) for pair in zip(made, graph.strides, strict=True)], once=True)
        if not changed and stops.changes == changes:
            return Walked()
        return Walked(made, [(args[k], given[k]) for k in graph.written if isinstance(args[k], Tensor)])

    def _tell(self, graph: CompiledGraph) -> None:
        if not self._told:
            self._told = True
            log.warning("stopping inside compiled code: it runs node by node to be looked at, then compiled as always")
        if graph.random and graph.region.backend != "aot_eager" and not self._told_random:
            self._told_random = True
            log.warning("the compiled code draws its own random numbers: those you see inside are others")

    def _sites(self, graph: CompiledGraph, node: Node) -> list[int]:
        """A view shows the same numbers as its base, and only a module's last one is a place of its own."""
        if base(node) is node:
            own = graph.sites(node)
            if graph.names[node].modules:
                return own
            return own[:1]
        name, session = graph.names[node], self.state.session
        value: Any = node.meta["val"]
        shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
        return [
            session.site(path, Role.OUT, Kind.MODULE, type=kind, shape=shape, dtype="", source=name.source)
            for path, kind in (name.modules if not graph.backward else ())
        ]


def _in_order(value: Any, strides: tuple[int, ...] | None) -> Any:
    """Laid out with these strides; they may be those of another size, where sizes are dynamic: then without gaps, in their order."""
    if not isinstance(value, Tensor) or strides is None or len(strides) != value.dim():
        return value
    dense, size = [0] * value.dim(), 1
    for k in sorted(range(value.dim()), key=lambda k: (strides[k], -k)):
        dense[k], size = size, size * value.shape[k]
    return laid_out(value, tuple(dense))


def _possible(graph: CompiledGraph) -> list[Site]:
    found = []
    for name in graph.names.values():
        found.append(Site(-1, name.name, name.role, Kind.OP))
        if not graph.backward:
            found += [Site(-1, path, Role.OUT, Kind.MODULE) for path, _ in name.modules]
    return found


def _gpus(args: Sequence[Any]) -> list[int]:
    return sorted({arg.get_device() for arg in args if isinstance(arg, Tensor) and arg.is_cuda})
