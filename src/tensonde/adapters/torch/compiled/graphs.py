"""All compiled graphs of a training: how each is watched, and what was seen when it was compiled.

By default a graph is compiled as it is, and its outputs and what it keeps for the backward pass are digested as the budget
allows. Nodes that the user watches by name, or all of them (`--graph nodes`, `--graph full`), are digested by the graph itself.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from threading import get_ident
from typing import Any

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from tensonde.adapters.torch.compiled import asked, compiling, interpret, record, verify
from tensonde.adapters.torch.compiled.comparison import Comparison
from tensonde.adapters.torch.compiled.latehooks import CompiledModules
from tensonde.adapters.torch.compiled.names import Names, NodeName
from tensonde.adapters.torch.compiled.region import Region
from tensonde.adapters.torch.compiled.retrace import Retrace
from tensonde.adapters.torch.compiled.stepping import Stepping, Walked
from tensonde.adapters.torch.compiled.telling import telling
from tensonde.adapters.torch.compiled.uncompiled import Uncompiled
from tensonde.adapters.torch.compiled.watched import CompiledGraph
from tensonde.adapters.torch.compiled.watching import Depth, Packing, instrument, watchable
from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.dumping.dump import Dump
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.current import observed
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import Trace
from tensonde.program.frames import foreign_frames, user_line
from tensonde.session.dump.iterations import wanted

log = logging.getLogger("tensonde.graph")

_LARGEST = frozenset({"nan", "inf", "nonfinite", "absmax", "step"})
"""What is known of a node of whose digest only the largest magnitude was computed."""


class Graphs:
    """Belongs to the training thread; graphs that other threads call pass through."""

    def __init__(self, state: RunState, digests: Digests, stops: Stops) -> None:
        self.state = state
        self.digests = digests
        self._stops = stops
        self.dump: Dump | None = None
        self.session = state.session
        self.guard = state.session.guard
        self.regions: list[Region] = []
        self.count = 0
        self.active = True
        self.modules: set[str] = set()
        """Modules that run inside of compiled graphs."""
        self._points: tuple[str, ...] = tuple(
            str(point) for point in self.session.engine.watchpoints if point.origin == "user"
        )
        self.compiled = CompiledModules()
        self._breaks = record.Breaks()
        self.comparison = Comparison(self)
        self._compared = verify.Tally()
        self._stepping = Stepping(state, stops)
        self._first: list[Any] | None = None
        self._expected: Any = None
        self._written: list[Any] = []
        """The inputs that the call writes to."""

    # -- compiling -------------------------------------------------------------------------------

    def region(self, backend: str) -> Region:
        """A region is about to be compiled."""
        stack = self.state.stack
        entry = stack[-1] if stack else None
        compiled = entry.ref() if entry is not None else None
        self.compiled.add(compiled)
        inner = self.state.roster.entries.get(id(getattr(compiled, "_orig_mod", None)))
        if inner is not None:
            self.modules.add(inner.name)
            if inner.name in self.state.roster.roots:  # it is also called uncompiled, and has its names from there
                entry = inner

        def owner(variable: str) -> str:
            if entry is not None:
                return (
                    self.state.parameters.prefix_of(entry.name)
                    if entry.name in self.state.roster.roots
                    else f"{entry.name}."
                )
            own = self._meet(variable)
            return self.state.parameters.prefix_of(own) if own else ""

        def own(variable: str) -> str:
            return entry.name if entry is not None else self._meet(variable) or variable

        def known(id: int) -> str | None:
            met = self.state.roster.entries.get(id)
            return met.name if met is not None else None

        home = self._home()
        part = home if home not in self.state.roster.roots else ""
        made = Region(len(self.regions), Names(owner, own, known, part), user_line(), backend, home)
        made.guards = record.guards_now()
        same = [region for region in self.regions if region.source is not None and region.source == made.source]
        if same:
            made.reason = "compiled again from the same line: a guard failed, or there are several graphs"
        self.regions.append(made)
        return made

    def _meet(self, variable: str) -> str | None:
        """The name of a root that compiled code uses by this variable."""
        scopes = [scope for frame in foreign_frames(sys._getframe(1)) for scope in (frame.f_locals, frame.f_globals)]
        for scope in (*compiling.scopes(), *scopes):
            found = scope.get(variable)
            if isinstance(found, torch.nn.Module):
                return self._name_of(found)
        return None

    def _name_of(self, module: torch.nn.Module) -> str:
        if id(module) not in self.state.roster.entries:
            self.state.roster.meet_root(module)
        return self.state.roster.entries[id(module)].name

    def _home(self) -> str:
        """The module whose own code is being compiled, where it is not the one that was called: after a graph break."""
        first = compiling.whose_forward()
        if first is None:
            return ""
        called = self.state.stack[-1].ref() if self.state.stack else None
        return "" if getattr(called, "_orig_mod", called) is first else self._name_of(first)

    def beside(self, region: Region, gm: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]] | None:
        """Where the training is dumped: what runs the region uncompiled, too, in steps that want it."""
        if self.dump is None or not isinstance(gm, GraphModule):
            return None
        try:
            region.uncompiled = Uncompiled(self.state, self.dumping, copy_of(gm), region.names, region.home)
            return region.uncompiled.beside
        except Exception as problem:
            self.guard.contain("looking at compiled code", problem)
            return None

    def compile(
        self, region: Region, compiler: verify.Compiler, gm: GraphModule, inputs: Sequence[Any], *, backward: bool
    ) -> Any:
        """What `compiler` makes of the graph, watched. Where that fails, what it makes of the graph alone."""
        began = time.perf_counter()
        try:
            graph = CompiledGraph(
                self, region, self.count, *self._named(region, gm, backward=backward), backward=backward
            )
            watched, packing = self._watched(graph, gm)
        except Exception as problem:
            self.guard.contain("looking at a compiled graph", problem)
            return compiler(gm, inputs)
        if packing.columns:
            try:
                made = compiler(watched, inputs)
                graph.packing = packing
                _cut_strides(len(graph.outputs))
            except Exception as problem:
                self.guard.contain("compiling a watched graph", problem)
                _cut_strides(0)
                made = compiler(gm, inputs)
        else:
            made = compiler(gm, inputs)
        graph.strides = _strides(graph)
        graph.compiler = compiler
        graph.run = made if getattr(made, "_boxed_call", False) else lambda args: made(*args)
        self.count += 1
        self.modules.update(region.names.modules)
        if backward:
            region.backward = graph
        else:
            region.forward = graph
            if region.asked is not None and not asked.fits(region.asked, graph.plain):
                region.asked = None
            if region.uncompiled is not None:
                region.uncompiled.writes_weights = writes_weights()
        self._note(graph, inputs, time.perf_counter() - began)

        def run(args: list[Any]) -> Any:
            return graph(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _named(self, region: Region, gm: GraphModule, *, backward: bool) -> tuple[GraphModule, dict[Node, Any]]:
        plain = copy_of(gm)
        return plain, region.names.of(plain, backward=backward, returned=returned_outputs())

    def _watched(self, graph: CompiledGraph, gm: GraphModule) -> tuple[GraphModule, Packing]:
        forward = graph.region.forward
        known = forward.nodes if graph.backward and forward is not None else ()
        nodes, exits = watchable(graph.plain, known), graph.exits()
        graph.telling = telling(nodes, graph.names, backward=graph.backward, always=exits)
        chosen = {node.name: depth for node in nodes if (depth := self.depth(graph, node))}
        graph.leaving = {name: k for name, k in exits.items() if chosen.pop(name, None)}
        if not chosen:
            return gm, Packing([], 0, [])
        watched = copy_of(gm)
        return watched, instrument(
            watched, [(node, chosen[node.name]) for node in watched.graph.nodes if node.name in chosen]
        )

    def depth(self, graph: CompiledGraph, node: Node) -> Depth:
        """How much the user wants to know of a node from the graph itself."""
        options = self.session.options
        if options.graph == "exact":
            return Depth.NONE
        if options.graph == "full" and node.name in graph.telling:
            return Depth.RANGE
        name = graph.names[node]
        sites = [Site(-1, name.name, name.role, Kind.OP, type=name.aten, source=name.source)]
        sites += [Site(-1, path, Role.OUT, Kind.MODULE, type=kind) for path, kind in graph.modules_of(node).items()]
        engine = self.session.engine
        points = [point for site in sites for point in engine.watchers(site, "user")]
        if points:
            enough = all(
                set() < engine.fields(point.id) <= _LARGEST for point in points
            )  # a named condition tells none
            return Depth.LARGEST if enough else Depth.RANGE
        return Depth.LARGEST if options.graph == "nodes" and node.name in graph.telling else Depth.NONE

    def _note(self, graph: CompiledGraph, inputs: Sequence[Any], seconds: float) -> None:
        try:
            self.session.writer.graph(
                record.recorded(
                    graph, graph.region.names.modules, step=self.state.step, seconds=seconds,
                    guards=graph.region.guards, dynamic=record.is_dynamic(inputs),
                )
            )  # fmt: skip
        except Exception as problem:
            self.guard.contain("writing the recording", problem)
        self.session.note(
            "graph_compiled", graph=graph.number, region=graph.region.number, backward=graph.backward, step=self.state.step,
            backend=graph.region.backend, nodes=len(graph.names), watched=len(graph.columns) + len(graph.leaving), seconds=round(seconds, 3),
        )  # fmt: skip
        self.session.uncounted()

    def refresh(self) -> None:
        """Watchpoints may have changed. Nodes that were not wanted before are compiled in, once."""
        points = tuple(str(point) for point in self.session.engine.watchpoints if point.origin == "user")
        if points == self._points:
            return
        self._points = points
        if any(self._lacking(graph) for graph in self._all()):
            log.warning("other nodes are watched now: compiled code is compiled again, once")
            self.session.note("graphs_reset", step=self.state.step, why="other nodes are watched")
            torch._dynamo.reset()

    def _all(self) -> list[CompiledGraph]:
        both = [graph for region in self.regions for graph in (region.forward, region.backward)]
        return [graph for graph in both if graph is not None]

    def _lacking(self, graph: CompiledGraph) -> bool:
        known = {column.node: column.depth for column in graph.columns} | dict.fromkeys(graph.leaving, Depth.RANGE)
        seen = graph.region.forward.nodes if graph.backward and graph.region.forward is not None else ()
        return any(self.depth(graph, node) > known.get(node.name, Depth.NONE) for node in watchable(graph.plain, seen))

    # -- running ---------------------------------------------------------------------------------

    def observing(self) -> bool:
        return self.active and observed(self.state) and self.state.thread == get_ident()

    def dumping(self) -> Dump | None:
        """The dump, where this step is dumped and observed."""
        return self.dump if self.dump is not None and self.dump.on and self.observing() else None

    def before(self, graph: CompiledGraph, args: list[Any]) -> Walked | None:
        """Keeps what is needed to look closer. Not None: what the call gives instead of the compiled results."""
        self._stops.at_entry()  # a compiled function may be the first thing that runs
        graph.keep(args)
        if not graph.backward:
            graph.region.overwritten.forward(graph, args)
        elif (found := graph.region.overwritten.backward(args)) is not None:
            self.session.note("compiled_input_overwritten", step=self.state.step, backend=graph.region.backend, **found)
        if self._stepping.wanted(graph):
            return self._stepping.walk(graph, args)
        if self._due(graph) and verify.affordable(graph.plain, random=graph.random):
            self._first = interpret.copies(args) if graph.backward else interpret.fresh(graph.plain, args)
            self._written = [args[k] for k in interpret.writes(graph.plain)]
            self._expected = interpret.results(graph.plain, args)
        return None

    def _due(self, graph: CompiledGraph) -> bool:
        options = self.session.options
        if options.verify_steps is not None and wanted(options.verify_steps, self.state.step):
            return True
        return graph.calls == 1 and options.budget != 0

    def after(self, graph: CompiledGraph, made: Any) -> None:
        """The call is over. Where it is to be compared: with what the graph should give."""
        args, expected, self._first, self._expected = self._first, self._expected, None, None
        written, self._written = self._written, []
        if args is None:
            return
        found = self.departure(graph, expected, made, written, args)
        self._compared.add(found.distance if found else verify.furthest(expected, [*made, *written])[0], found)

    def departure(
        self,
        graph: CompiledGraph,
        right: Sequence[Any],
        made: Sequence[Any],
        written: Sequence[Any],
        args: Sequence[Any],
    ) -> verify.Departure | None:
        """Where a call departs from its graph, or from what that was before the backend's own passes; it is taken down."""
        found = verify.first_departure(graph.plain, right, [*made, *written], args)
        if found is not None:
            found = self.located(graph, found, args)
            self.departed(graph, found)
            return found
        before = graph.region.asked
        if before is None or graph.backward:
            return None
        places = dict(zip(interpret.writes(graph.plain), written, strict=True))
        found = asked.departure(before, graph.plain, made, places, args)
        if found is not None:
            self.departed(graph, found)
        return found

    def located(self, graph: CompiledGraph, found: verify.Departure, args: Sequence[Any]) -> verify.Departure:
        """The first node that departs, as far as it can be found by compiling parts of the graph."""
        log.warning(
            "the compiled result of graph %d departs from the graph itself; looking for the first node", graph.number
        )
        compiler = verify.inductor() if graph.region.backend == "inductor" else graph.compiler
        active, self.active = self.active, False
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                return verify.located(graph.plain, found, args, compiler)
        except Exception as problem:  # a part of a graph may be beyond the compiler; the output's name is known
            log.debug("the first departing node could not be found: %s", problem, exc_info=problem)
            return found
        finally:
            self.active = active

    def departed(self, graph: CompiledGraph, found: verify.Departure) -> None:
        """Takes it down in the recording."""
        node, name = self.node(graph, found)
        source = name.source if name is not None else None
        self.session.note(
            "compiled_departs", graph=graph.number, region=graph.region.number, backend=graph.region.backend,
            backward=graph.backward, step=self.state.step, node=node.name, target=str(node.target),
            site=name.address if name is not None else None, distance=found.distance, max_abs=found.max_abs,
            exact=found.exact, rewritten=found.rewritten, source=asdict(source) if source is not None else None,
        )  # fmt: skip

    @staticmethod
    def node(graph: CompiledGraph, found: verify.Departure) -> tuple[Node, NodeName | None]:
        """The node that departs, and its name."""
        before = graph.region.asked
        if not found.rewritten or before is None:
            return graph.nodes[found.node], graph.names.get(graph.nodes[found.node])
        node = next(node for node in before.graph.nodes if node.name == found.node)
        return node, graph.region.names.of(before, backward=False).get(node)

    def retrace(self, why: str) -> Trace | None:
        """The compiled calls of this step again, node by node; None where there were none."""
        called = [
            region
            for region in self.regions
            if region.forward is not None
            and region.forward.kept is not None
            and "c10d" not in str([node.target for node in region.forward.names])  # ranks must not talk out of turn
        ]
        if not called:
            return None
        began = time.perf_counter()
        again = Retrace({key: name for key, (name, _) in self.state.parameters.names.copy().items()})
        self.active = False
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # a print of the program's own was seen already
                made = [(region, again.forward(region.forward)) for region in called if region.forward is not None]
                for region, values in reversed(made):
                    if region.backward is not None and again.loss is None:
                        again.backward(region.backward, values)
        finally:
            self.active = True
        trace = again.trace(self.state.step)
        self.session.note(
            "replayed", step=self.state.step, trigger=why, exact=trace.exact, ops=len(trace.ops), compiled=True,
            notes=list(trace.notes), seconds=round(time.perf_counter() - began, 4),
        )  # fmt: skip
        return trace

    def finish_step(self) -> None:
        """Nothing of a step is kept beyond it, but for a debugger that stops between two steps."""
        if not self.regions:
            return
        for kind, fields in self._breaks.news():
            self.session.note(kind, step=self.state.step, **fields)
        if self._compared.calls:
            self.session.note("graphs_compared", step=self.state.step, **asdict(self._compared))
            self._compared = verify.Tally()
            self.session.uncounted()  # how long it took says nothing about watching
        for graph in self._all():
            graph.last = graph.kept if self._stops.keeping else None
            graph.kept = None


def copy_of(gm: GraphModule) -> GraphModule:
    """The same graph, to be changed or kept as it was."""
    made = GraphModule(gm, copy.deepcopy(gm.graph), type(gm).__name__)
    made.meta.update(gm.meta)
    return made


def returned_outputs() -> slice:
    """Before what the program returns come inputs that it changed; after it, what the backward pass needs."""
    context = TracingContext.try_get()
    facts = context.fw_metadata if context is not None else None
    if facts is None:
        return slice(None)
    first = facts.num_mutated_inp_runtime_indices
    return slice(first, first + facts.num_outputs)


def writes_weights() -> bool:
    """Whether the code that is being compiled changes inputs that require gradients; yes where that is not known."""
    context = TracingContext.try_get()
    facts = context.fw_metadata if context is not None else None
    return facts is None or any(given.requires_grad and given.mutates_data for given in facts.input_info)


def _strides(graph: CompiledGraph) -> list[tuple[int, ...] | None]:
    """How the outputs of what was just compiled lie in memory: as the backend reports it, else as the graph was traced."""
    context = TracingContext.try_get()
    reported = (context.output_strides if context is not None else None) or [None] * len(graph.outputs)
    found: list[tuple[int, ...] | None] = []
    for name, strides in zip(graph.outputs, reported, strict=False):
        value = graph.nodes[name].meta.get("val") if name is not None else None
        if strides is None and isinstance(value, torch.Tensor) and value.layout is torch.strided:
            strides = tuple(value.stride())
        known = strides is not None and all(isinstance(one, int) for one in strides)
        found.append(tuple(strides) if known and strides is not None else None)
    return found


def _cut_strides(count: int) -> None:
    """The strides of the outputs are reported to AOTAutograd, which knows nothing of one more."""
    context = TracingContext.try_get()
    if context is not None and context.output_strides:
        del context.output_strides[count:]
