"""The graph: ops of a traced step in execution order, nested in modules; a compiled graph; else the tree of modules.

Columnar, so that 50,000 nodes are some lists and not 50,000 objects.
"""

from __future__ import annotations

import itertools
from typing import Any

from tensonde.errors import UsageError
from tensonde.model.flow import inputs_of
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.server import atstop
from tensonde.server.compiled import columns, label, largest, order, regions
from tensonde.server.health import health_of_op, health_of_stats
from tensonde.server.place import Place

Json = dict[str, Any]
WRAPPED = "module"
WRAPPERS = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule"}
PHASES = ("forward", "backward", "all")


def graph(place: Place, source: str | None, phase: str) -> Json:
    """Raises UsageError for a source that there is not."""
    if phase not in PHASES:
        raise UsageError(f"the phase is {phase!r}; it may be {', '.join(PHASES)}.")
    files = place.recorded.trace_files() if place.recorded is not None else []
    traces = {f"trace:{k}": path for k, path in enumerate(files)}
    sources, preferred = [], ""
    for id, path in traces.items():
        known = place.recorded.trace(path) if place.recorded is not None else None
        if known is not None:
            sources.append({"id": id, "label": f"step {known.step} ({_reason(known)})"})
            if known.reason in ("replay", "exception") or not preferred:
                preferred = id  # the step that went wrong, if one did
    compiled = regions(place)
    whole = place.recorded.trace(traces[preferred]) if preferred and place.recorded is not None else None
    region, ops = largest(place)
    if ops and (whole is None or ops > sum(op.phase is not Phase.BACKWARD for op in whole.ops)):
        preferred = region  # what was compiled is no op of any trace
    sources += [{"id": id, "label": label(graphs)} for id, graphs in compiled.items()]
    sources.append({"id": "module", "label": "modules, as in eager mode" if compiled else "modules"})
    chosen = source or preferred or "module"
    if chosen not in {entry["id"] for entry in sources}:
        raise UsageError(f"there is no graph {chosen!r}; there are {', '.join(entry['id'] for entry in sources)}.")
    if chosen in compiled:
        graphs = compiled[chosen]
        return {"source": chosen, "step": graphs[0].step, "sources": sources, **columns(graphs, phase)}
    build = _Builder(place)
    step: int | None = None
    trace = place.recorded.trace(traces[chosen]) if chosen in traces and place.recorded is not None else None
    if trace is not None:
        step = trace.step
        if phase != "backward":
            build.forward(trace)
        if phase != "forward":
            build.backward(trace)
    else:
        build.modules()
    return {"source": chosen, "step": step, "sources": sources, **build.result()}


def _reason(trace: Trace) -> str:
    return {
        "first": "first step",
        "stage": "a whole step",
        "replay": "bad, replayed",
        "exception": "exception",
    }.get(trace.reason, trace.reason)


class _Builder:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.columns: dict[str, list[Any]] = {
            name: [] for name in ("name", "kind", "type", "scope", "source", "phase", "op", "site", "health")
        }
        self.origin: list[int] = []
        self.target: list[int] = []
        self.scopes: dict[str, int] = {}
        self.scope_columns: dict[str, list[Any]] = {"name": [], "type": [], "parent": []}
        modules = place.facts.get("modules")
        self.types = (
            {name: str(entry.get("type", "")) for name, entry in modules.items() if isinstance(entry, dict)}
            if isinstance(modules, dict)
            else {}
        )
        for site in place.sites.values():
            if site.kind is Kind.MODULE and site.name not in self.types:
                self.types[site.name] = site.type
        # Before the first step is over, only the training itself knows what there is.
        told = atstop.model(place) if not self.types or not place.facts.get("modules") else None
        told = told or {"modules": [], "parameters": []}
        self.known_parameters: list[str] = told["parameters"]
        for entry in told["modules"]:
            self.types.setdefault(entry["name"], entry["type"])
        # The root that adds nothing to the paths inside it holds what no other root claims.
        roots = [name for name in place.facts.get("roots") or {} if name in self.types]
        roots = roots or [entry["name"] for entry in told["modules"] if entry["root"]]
        if not roots:  # not told yet: what is entered first is one
            entered = (site.name for site in place.sites.values() if site.kind is Kind.MODULE and site.role is Role.IN)
            roots = list(itertools.islice(entered, 1))
        self.bare = next(
            (root for root in roots if not any(name.startswith(f"{root}.") for name in self.types)
             and any(name not in roots and not name.startswith(tuple(f"{r}." for r in roots)) for name in self.types)
             and (self.known_parameters or any(site.kind is Kind.PARAMETER for site in place.sites.values()))), None,
        )  # fmt: skip
        self.roots = set(roots)
        self.inner = self._wrapped()

    def _wrapped(self) -> str | None:
        """The module that a wrapper (DDP, a compiled module) holds: everything else is inside it, though its name is in no path."""
        if self.bare is None or self.types.get(self.bare) not in WRAPPERS or WRAPPED not in self.types:
            return None
        return WRAPPED if WRAPPED not in self.roots else None

    def _above(self, name: str) -> int:
        """The scope around a name without dots."""
        if self.bare is None or name in self.roots:
            return -1
        if self.inner is not None and name != self.inner:
            return self.scope(self.inner)
        return self.scope(self.bare)

    def result(self) -> Json:
        return {
            "nodes": self.columns,
            "edges": {"from": self.origin, "to": self.target},
            "scopes": self.scope_columns,
        }

    def scope(self, name: str, type: str = "") -> int:
        """The scope of a module path, made with those around it."""
        if not name:
            return -1
        known = self.scopes.get(name)
        if known is not None:
            if type and not self.scope_columns["type"][known]:
                self.scope_columns["type"][known] = type
            return known
        parent, dot, _ = name.rpartition(".")
        above = self.scope(parent) if dot else self._above(name)
        known = self.scopes[name] = len(self.scopes)
        self.scope_columns["name"].append(name)
        self.scope_columns["type"].append(type or self.types.get(name, ""))
        self.scope_columns["parent"].append(above)
        return known

    def node(
        self, name: str, kind: str, type: str, scope: int, source: Any, phase: str, op: str, site: str | None, health: str = "none"
    ) -> int:  # fmt: skip
        columns = self.columns
        columns["name"].append(name)
        columns["kind"].append(kind)
        columns["type"].append(type)
        columns["scope"].append(scope)
        columns["source"].append(f"{source.file}:{source.line}" if source is not None else None)
        columns["phase"].append(phase)
        columns["op"].append(op)
        columns["site"].append(site)
        columns["health"].append(health)
        return len(columns["name"]) - 1

    def edge(self, origin: int, target: int) -> None:
        self.origin.append(origin)
        self.target.append(target)

    def forward(self, trace: Trace) -> None:
        made: dict[int, int] = {}
        outside: dict[int, int] = {}
        inputs = inputs_of(trace)
        for op in trace.ops:
            if op.phase is Phase.BACKWARD:
                continue
            scope = self.scope(op.module, op.module_type)
            own = [self.outside(tensor, outside, scope, inputs) for tensor in op.inputs if tensor.producer is None]
            index = self.node(
                op.site, "op", op.op, scope, op.source, str(op.phase), op.op, address_of(op), health_of_op(op)
            )
            made[op.index] = index
            for origin in dict.fromkeys(
                [*own, *(made[t.producer] for t in op.inputs if t.producer is not None and t.producer in made)]
            ):
                self.edge(origin, index)
        if trace.loss is not None and trace.loss in made:
            loss = self.node("loss", "loss", "loss", -1, None, "forward", "", "loss:value")
            self.edge(made[trace.loss], loss)

    def outside(self, tensor: TensorFact, known: dict[int, int], scope: int, inputs: dict[int, str]) -> int:
        """A parameter, or what came from outside."""
        found = known.get(tensor.id)
        if found is None:
            if tensor.name:
                owner, dot, _ = tensor.name.rpartition(".")
                inside = self.scopes.get(owner) if dot else None
                found = self.node(
                    tensor.name, "parameter", tensor.dtype, scope if inside is None else inside,
                    None, "forward", "", f"{tensor.name}:value",
                )  # fmt: skip
            else:
                found = self.node(inputs[tensor.id], "input", tensor.dtype, -1, None, "forward", "", None)
            known[tensor.id] = found
        return found

    def backward(self, trace: Trace) -> None:
        """Gradients flow the other way: a node for every op whose gradient was seen, its edges reversed."""
        made: dict[int, int] = {}
        weights: dict[str, int] = {}
        start = (
            self.node("loss (backward)", "loss", "loss", -1, None, "backward", "", None)
            if trace.loss is not None
            else None
        )
        for op in reversed(trace.ops):
            if op.phase is Phase.BACKWARD or not op.gradient:
                continue
            scope = self.scope(op.module, op.module_type)
            index = made[op.index] = self.node(
                f"{op.site} (backward)",
                "op",
                op.op,
                scope,
                op.source,
                "backward",
                op.op,
                f"{op.site}:grad",
                health_of_stats([op.gradient]),
            )
            if start is not None and op.index == trace.loss:
                self.edge(start, index)
        for op in reversed(trace.ops):
            origin = made.get(op.index)
            if origin is None:
                continue
            for tensor in op.inputs:
                if tensor.producer is not None and tensor.producer in made:
                    self.edge(origin, made[tensor.producer])
                elif tensor.name and tensor.requires_grad:
                    if tensor.name not in weights:
                        weights[tensor.name] = self.node(
                            f"{tensor.name} (gradient)", "parameter", tensor.dtype, self.columns["scope"][origin],
                            None, "backward", "", f"{tensor.name}:grad",
                        )  # fmt: skip
                    self.edge(origin, weights[tensor.name])

    def modules(self) -> None:
        """Leaves of the module tree in the order seen, one after the other, with their parameters. Of compiled ones, the graph knows the order."""
        sites = list(self.place.sites.values())
        weights = [(s.name, s.dtype, s.source) for s in sites if s.kind is Kind.PARAMETER and s.role is Role.VALUE]
        if not weights:
            weights = [(name, "", None) for name in self.known_parameters]
        ran = (s.name for s in sites if s.kind is Kind.MODULE and s.role in (Role.IN, Role.OUT))
        compiled = (name for name in order(self.place) if name in self.types)
        names = list(dict.fromkeys([*compiled, *ran, *self.types]))
        parents = {name[:k] for name in names for k, letter in enumerate(name) if letter == "."}
        first: dict[str, Site] = {}
        for site in sites:
            if site.kind is Kind.MODULE and site.role is Role.OUT:
                first.setdefault(site.name, site)
        leaves: dict[str, int] = {}
        before: int | None = None
        for name in names:
            if name in parents or name in (self.bare, self.inner):
                self.scope(name)
                continue
            known = first.get(name)
            above = name.rpartition(".")[0]
            scope = self.scope(above) if above else self._above(name)
            source = known.source if known is not None else None
            index = self.node(
                name,
                "module",
                self.types.get(name, ""),
                scope,
                source,
                "forward",
                "",
                known.address if known else f"{name}:out",
            )
            leaves[name] = index
            if before is not None:
                self.edge(before, index)
            before = index
        for name, dtype, source in weights:
            owner = name.rpartition(".")[0]
            while owner and owner not in leaves and owner not in self.scopes:
                owner = owner.rpartition(".")[0]  # attention reads the weights of a module that it does not call
            if owner in leaves:
                scope = self.columns["scope"][leaves[owner]]
            else:
                scope = self.scopes.get(owner, -1) if owner else self._above(name)  # the root's own
            index = self.node(name, "parameter", dtype, scope, source, "forward", "", f"{name}:value")
            if owner in leaves:
                self.edge(index, leaves[owner])
        losses = [site for site in sites if site.kind is Kind.LOSS and site.role is Role.VALUE]
        for site in losses:
            index = self.node(site.name, "loss", "loss", -1, site.source, "forward", "", site.address)
            if before is not None:
                self.edge(before, index)


def address_of(op: OpRecord) -> str | None:
    """Of its first output."""
    if not op.outputs:
        return None
    return f"{op.site}:out" if len(op.outputs) == 1 else f"{op.site}:out[0]"
