"""A compiled call node by node while a debugger wants to stop inside of it: every node is a place to stop, forward and backward.

The call's results are those of the framework's own kernels then, which may differ from the compiled ones in the last bits.
The next call that nobody wants to stop in runs compiled again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Node

from tensonde.adapters.torch.graph.compiled import CompiledGraph
from tensonde.adapters.torch.graph.interpret import NodeByNode
from tensonde.adapters.torch.graph.watching import base
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.pattern import Pattern

if TYPE_CHECKING:
    from tensonde.adapters.torch.eager import Eager

log = logging.getLogger("tensonde.graph")


class Stepping:
    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self._told = False

    def wanted(self, graph: CompiledGraph) -> bool:
        """Whether somebody may want to stop inside of this call."""
        stops, gate = self.eager.stops, self.eager.stops.gate
        if not stops.debugging or not (stops.attentive or gate.pausing):
            return False
        if gate.plan.kind in ("next", "nextop", "finish"):
            return True
        patterns = [Pattern.parse(point.sites) for point in gate.breakpoints.values() if point.sites]
        if gate.plan.kind == "until":
            patterns.append(Pattern.parse(gate.plan.sites))
        return any(pattern.matches(site) for site in _possible(graph) for pattern in patterns)

    def run(self, graph: CompiledGraph, args: list[Any]) -> Any:
        """What the graph gives, having stopped wherever somebody wanted to."""
        if not self._told:
            self._told = True
            log.warning("stopping inside compiled code: such calls run node by node, the others compiled as before")
        stops = self.eager.stops

        def visit(node: Node, value: Any) -> None:
            name = graph.names[node]
            if not isinstance(value, Tensor):
                return
            stops.inside = (name.module,) if name.module else ()
            for site in self._sites(graph, node):
                stops.tap(site, 0)(value)

        before = stops.inside
        try:
            with torch.no_grad(), torch._C._DisableAutocast():
                made = NodeByNode(graph.plain, visit).run(*args)
        finally:
            stops.inside = before
        args.clear()
        return made

    def _sites(self, graph: CompiledGraph, node: Node) -> list[int]:
        """A view shows the same numbers as its base, and only a module's last one is a place of its own."""
        if base(node) is node:
            own = graph.sites(node)
            if graph.names[node].modules:
                return own
            return own[:1]
        name, session = graph.names[node], self.eager.session
        value: Any = node.meta["val"]
        shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
        return [
            session.site(path, Role.OUT, Kind.MODULE, type=kind, shape=shape, dtype="", source=name.source)
            for path, kind in (name.modules if not graph.backward else ())
        ]


def _possible(graph: CompiledGraph) -> list[Site]:
    found = []
    for name in graph.names.values():
        found.append(Site(-1, name.name, name.role, Kind.OP))
        if not graph.backward:
            found += [Site(-1, path, Role.OUT, Kind.MODULE) for path, _ in name.modules]
    return found
