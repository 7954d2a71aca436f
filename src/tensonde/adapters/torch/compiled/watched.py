"""One compiled graph at run time: it is called in the place of what the backend made, and reports what passed.

What the graph computed for Tensonde is taken off its outputs before anybody sees them. Nothing else is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tensonde.adapters.torch.compiled.interpret import has_random, repeatable, written_inputs
from tensonde.adapters.torch.compiled.names import NodeName
from tensonde.adapters.torch.compiled.region import Region
from tensonde.adapters.torch.compiled.watching import Column, Depth, Packing, base, is_generated
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import dtype_name, version_of
from tensonde.digest.layout import DTYPES, PARTIAL, UNSIGNED
from tensonde.model.site import Kind, Role
from tensonde.session.guard import Guard
from tensonde.session.policy import Level
from tensonde.session.session import CAPACITY, Session

_STATE_BYTES = 1 << 20


class Owner(Protocol):
    """Whom a graph tells about its calls. `Graphs` is one."""

    state: RunState
    session: Session
    guard: Guard
    digests: Digests

    def observing(self) -> bool: ...

    def before(self, graph: CompiledGraph, args: list[Any]) -> Any:
        """Not None: what the call gives instead of the compiled results."""

    def after(self, graph: CompiledGraph, made: list[Any]) -> None: ...


class CompiledGraph:
    """`plain` is the graph as AOTAutograd made it, `names` those of its nodes; `backward` says which of the two it is."""

    def __init__(
        self,
        graphs: Owner | None,
        region: Region | None,
        number: int,
        plain: GraphModule,
        names: dict[Node, NodeName],
        *,
        backward: bool,
    ) -> None:
        """Without `graphs` and `region` it can be looked at, not called."""
        self.graphs: Owner = graphs  # type: ignore[assignment]
        self.region: Region = region  # type: ignore[assignment]
        self.number, self.plain, self.names = number, plain, names
        self.backward = backward
        self.packing = Packing([], 0, [])
        self.telling: frozenset[str] = frozenset()
        """The nodes that tell of NaN and Inf in all of them."""
        self.leaving: dict[str, int] = {}
        """Watched nodes that are digested as they leave the graph, and which output they are."""
        self.strides: list[tuple[int, ...] | None] = []
        """How the outputs of the compiled graph lie in memory; None where that is not known."""
        self.compiler: Callable[..., Any] = _not_compiled
        self.run: Callable[[list[Any]], Any] = _not_compiled
        self.calls = 0
        self.kept: Kept | None = None
        """What it was last called with in this step."""
        self.last: Kept | None = None
        """The same of the step before, where a debugger may ask for it."""
        self.random = has_random(plain)
        self.once = not repeatable(plain)
        """It must not be called again: the effect would be visible."""
        self.written = written_inputs(plain)
        self.nodes = {node.name: node for node in plain.graph.nodes}
        self.placeholders = [node.name for node in plain.graph.nodes if node.op == "placeholder"]
        self.outputs = self._outputs()
        self._taps: list[tuple[int, list[int]]] | None = None
        self._exits: list[tuple[int, int]] | None = None
        self._table: Table | None = None
        self._modules: dict[Node, dict[str, str]] | None = None
        self._step = -1
        self._calls_in_step = 0

    def _outputs(self) -> list[str | None]:
        (out,) = (node for node in self.plain.graph.nodes if node.op == "output")
        return [node.name if isinstance(node, Node) else None for node in out.args[0]]

    @property
    def random_states(self) -> dict[str, str]:
        """Of a forward graph: the states of random generators that checkpointing keeps, by their names in the backward graph."""
        states = [
            name
            for name in self.outputs
            if name is not None and self.nodes[name].op == "call_function"
            if any(str(source.target) == "run_and_save_rng_state" for source in self.nodes[name].all_input_nodes)
        ]
        return {f"rng_state_output_{k}": name for k, name in enumerate(states)}

    @property
    def columns(self) -> list[Column]:
        return self.packing.columns

    # -- the call --------------------------------------------------------------------------------

    def __call__(self, args: list[Any]) -> Any:
        graphs = self.graphs
        if not graphs.observing():
            return self._strip(self.run(args))
        self.calls += 1
        try:
            walked = graphs.before(self, args)
        except Exception as problem:
            graphs.guard.contain("keeping the inputs of a compiled graph", problem)
            walked = None
        if walked is not None and walked.once:
            return walked.made
        state = graphs.state
        resting, state.inside_idle = state.inside_idle, True  # a backend may call the graph as a module
        try:
            given = self.run(args)
        finally:
            state.inside_idle = resting
        made = self._strip(given)
        if walked is not None:
            return walked.results(made)
        if self.once:
            self.strides = [tuple(one.stride()) if isinstance(one, Tensor) else None for one in made]
        began = time.perf_counter_ns()
        counted = graphs.session.block.nanos
        try:
            self._observe(given, made)
            graphs.after(self, made)
        except Exception as problem:
            graphs.guard.contain("observing a compiled graph", problem)
        graphs.session.cost_ns += time.perf_counter_ns() - began - (graphs.session.block.nanos - counted)
        return made

    @property
    def recent(self) -> Kept | None:
        return self.kept or self.last

    def again(self, args: list[Any]) -> Any:
        """What the compiled graph gives, unobserved."""
        return self._strip(self.run(args))

    def _strip(self, given: Any) -> Any:
        return given[: len(self.outputs)] if self.columns else given

    def _observe(self, given: Any, made: Any) -> None:
        state = self.graphs.state
        if self._step != state.step:
            self._step, self._calls_in_step = state.step, 0
        call = self._calls_in_step
        self._calls_in_step += 1
        if self.columns:
            if self._table is None:
                self._table = Table(self)
            self._table.fill(given[len(self.outputs) :], call)
        if self.leaving:
            if self._exits is None:
                nodes = [(k, self.nodes[name]) for name, k in self.leaving.items()]
                self._exits = [(k, site) for k, node in nodes for site in self.sites(node)]
            sites = [site for _, site in self._exits]
            if state.session.immediate.isdisjoint(sites):
                state.session.block.add_many(sites, [made[k] for k, _ in self._exits], call)
            else:
                for k, site in self._exits:
                    self.graphs.digests.add(site, made[k], call)
        if state.level == Level.FULL and not self.backward:
            if self._taps is None:
                self._taps = self._tapped()
            for k, sites in self._taps:
                for site in sites:
                    self.graphs.digests.add(site, made[k].detach(), call)

    def _tapped(self) -> list[tuple[int, list[int]]]:
        """The outputs (with what is kept for the backward pass) that the graph itself does not digest, and their sites."""
        known = {column.node for column in self.columns} | set(self.leaving)
        found = []
        for k, name in enumerate(self.outputs):
            node = self.nodes[name] if name is not None else None
            if node is None or node.op != "call_function" or base(node).name in known or base(node) not in self.names:
                continue
            value = node.meta.get("val")
            if isinstance(value, Tensor) and value.is_floating_point():
                known.add(base(node).name)
                found.append((k, self.sites(base(node))))
        return found

    def sites(self, node: Node) -> list[int]:
        """The sites that show what this node gives: its own, and the modules' whose output it is."""
        name, value = self.names[node], node.meta["val"]
        facts: dict[str, Any] = {
            "shape": tuple(size if isinstance(size, int) else -1 for size in value.shape),
            "dtype": dtype_name(value),
            "source": name.source,
        }
        session = self.graphs.session
        made = [session.site(name.name, name.role, Kind.OP, type=name.aten, **facts)]
        for path, kind in self.modules_of(node).items():
            made.append(session.site(path, Role.OUT, Kind.MODULE, type=kind, **facts))
        return made

    def modules_of(self, node: Node) -> dict[str, str]:
        """Path and type of the modules whose output this is; their last node may be a view of it."""
        if self.backward:
            return {}
        if self._modules is None:
            self._modules = {}
            for last, name in self.names.items():
                self._modules.setdefault(base(last), {}).update(name.modules)
        return self._modules.get(node, {})

    def exits(self) -> dict[str, int]:
        """Nodes that are digested when they leave the graph: in a backward graph all results, in a forward graph what no code
        that the compiler writes makes or reads.

        They are in memory anyhow, made by a library's kernel that nothing can be fused into: one pass of the digest kernel
        when they leave is cheaper than reductions in the graph, and is known in full.
        """
        found: dict[str, int] = {}
        for k, name in enumerate(self.outputs):
            node = self.nodes[name] if name is not None else None
            if node is None or not isinstance(node.meta.get("val"), Tensor) or node.meta["val"].device.type != "cpu":
                continue
            if self.backward or not is_generated(base(node)):
                found.setdefault(base(node).name, k)
        return found

    # -- inputs ----------------------------------------------------------------------------------

    def keep(self, args: list[Any]) -> None:
        """What is needed to run this call again. Of a backward graph only what came from outside."""
        if self.backward:
            outside: list[Any] = [
                arg if name.startswith("tangents") else None for name, arg in zip(self.placeholders, args, strict=True)
            ]
            self.kept = Kept(outside, None)
            return
        held: list[Any] = list(args)
        for k in self.written:
            if isinstance(held[k], Tensor) and held[k].numel() * held[k].element_size() <= _STATE_BYTES:
                held[k] = held[k].detach().clone()
        self.kept = Kept(held, torch.default_generator.get_state() if self.random else None)


class Kept:
    """The arguments of a call, by reference, with their versions."""

    def __init__(self, args: list[Any], random: Tensor | None) -> None:
        self.args, self.random = args, random
        self.versions = [version_of(arg) for arg in args]

    @property
    def unchanged(self) -> bool:
        return [version_of(arg) for arg in self.args] == self.versions


class Table:
    """From the packed output to rows of digests: which number is which field of which site."""

    def __init__(self, graph: CompiledGraph) -> None:
        self._session = graph.graphs.session
        sites: list[int] = []
        columns: list[Column] = []
        for column in graph.columns:
            for site in graph.sites(graph.nodes[column.node]):
                sites.append(site)
                columns.append(column)
        values = [graph.nodes[column.node].meta["val"] for column in columns]
        self._sites = sites
        self._starts = np.array(graph.packing.starts)
        self._first = np.array([column.first for column in columns])
        self._factor = np.array([column.factor for column in columns])
        self._range = np.array([column.depth is Depth.RANGE for column in columns])
        self._dtypes = [DTYPES.index(dtype_name(value)) for value in values]
        self._counts = np.array([_count(value) for value in values])
        self._immediate = any(site in self._session.immediate for site in sites)

    def fill(self, packs: Sequence[Tensor], call: int) -> None:
        session, block = self._session, self._session.block
        size = len(self._sites)
        if len(block) + size > CAPACITY:
            session.flush()
        first = len(block)
        for site in self._sites:
            block.reserve(site, call)
        rows = session.rows[first : first + size]
        with np.errstate(all="ignore"):
            lowest, highest, total = numbers(packs, self._starts)
            last = len(self._starts) - 1
            low = np.where(self._range, lowest[self._first], highest[self._first])
            high = highest[np.minimum(self._first + self._range, last)]
            square = np.where(self._range, total[np.minimum(self._first + 2, last)], np.nan)
            low, high, square = low * self._factor, high * self._factor, square * self._factor**2
            low, high = np.minimum(low, high), np.maximum(low, high)
            low, high = (np.where(self._range, number, np.abs(number)) for number in (low, high))
            nan = np.isnan(low) | np.isnan(high)
            largest = np.where(self._range, np.maximum(np.abs(low), np.abs(high)), high)
            infinite = np.isinf(largest) & ~nan
            fine = ~nan & ~infinite
            rows["count"] = self._counts
            rows["nan"] = nan
            rows["pos_inf"] = infinite & self._range & (high == np.inf)
            rows["neg_inf"] = infinite & (~self._range | (low == -np.inf))
            rows["zero"] = np.where(largest == 0, self._counts, 0)
            rows["negative"] = 0
            rows["absmax"] = np.where(fine, largest, np.nan)
            rows["min"] = np.where(fine & self._range, low, np.nan)
            rows["max"] = np.where(fine & self._range, high, np.nan)
            rows["norm"] = np.where(fine & np.isfinite(square), np.sqrt(square), np.nan)
        for name in ("mean", "std", "absmean"):
            rows[name] = np.nan
        rows["exponents"] = 0
        rows["dtype"] = self._dtypes
        rows["flags"] = PARTIAL | np.where(infinite & ~self._range, UNSIGNED, 0)
        bad = np.flatnonzero(nan | infinite)
        for k in bad.tolist():
            session.found_nonfinite(self._sites[k])
        if self._immediate or len(bad):
            session.evaluate()


def numbers(packs: Sequence[Tensor], starts: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Of each number of `Packing.starts` the smallest, the largest and the sum of its parts."""
    flat = torch.cat([pack.detach().reshape(-1) for pack in packs]).cpu().numpy()
    if len(flat) == len(starts):
        return [flat[starts].astype(np.float64)] * 3
    order = np.argsort(starts)
    made = []
    for reduction in (np.minimum, np.maximum, np.add):
        found = np.empty(len(starts))
        found[order] = reduction.reduceat(flat, starts[order])
        made.append(found)
    return made


def _count(value: Tensor) -> int:
    count: Any = value.numel()
    return count if isinstance(count, int) else int(count.node.hint or 1)  # a dynamic shape: as it was when compiled


def _not_compiled(args: list[Any]) -> Any:
    raise RuntimeError("the graph was not compiled yet")
