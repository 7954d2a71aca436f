"""One node of the graph: what went in, what came out, and its neighbours."""

from __future__ import annotations

from typing import Any

from tensonde.model.flow import around_module, inputs_of, users_of
from tensonde.model.graph import GraphRecord
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.program.lines import from_text, to_json
from tensonde.server import atstop, compiled
from tensonde.server.place import Place
from tensonde.server.reading import digests_of
from tensonde.server.refusals import NotFound
from tensonde.store.files import plain
from tensonde.watch.suggest import nearest

Json = dict[str, Any]
MOST_AROUND = 24
_SUFFIXES = (" (backward)", " (gradient)")


def node(place: Place, name: str, step: int | None) -> Json:
    """An op of a trace, a module, a parameter or the loss. Raises NotFound with a sentence."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    trace, op = _find_op(place, name, step)
    if op is not None and trace is not None:
        return _of_op(place, trace, op)
    sites = [site for site in place.sites.values() if site.name == name]
    found = compiled.find(place, name)
    if found is not None and (not sites or "/" in name):
        return _of_compiled(place, *found, sites, step)
    if not sites:
        modeled = _of_input(place, name, step) or _of_facts(place, name, step) or _of_model(place, name, step)
        if modeled is not None:
            return modeled
        known = {site.name for site in place.sites.values()}
        close = nearest(name, sorted(known))
        hint = f"; the nearest are {', '.join(close)}" if close else ""
        raise NotFound(f"there is no node {name!r} in {place.name}{hint}.")
    return _of_sites(place, name, sites, step)


def _of_compiled(place: Place, graph: GraphRecord, node: int, sites: list[Site], step: int | None) -> Json:
    """A node of a compiled graph: its digests are there where the graph computes them by itself."""
    column = graph.nodes
    before, after = compiled.neighbours(place, graph, node)
    scope = column["scope"][node]
    name = compiled.names(graph)[node]
    shown = _of_sites(place, name, sites, step) if sites else {}
    return {
        "name": name, "kind": column["kind"][node], "type": column["type"][node],
        "module": graph.scopes["name"][scope] if scope >= 0 else "",
        "source": to_json(from_text(str(column["source"][node] or ""))),
        "training": None, "step": shown.get("step", graph.step), "arguments": {},
        "inputs": shown.get("inputs", []), "outputs": shown.get("outputs", []), "parameters": [],
        "before": before, "after": after, "around": _around(place, [*before, *after], step),
    }  # fmt: skip


def _find_op(place: Place, name: str, step: int | None) -> tuple[Trace | None, OpRecord | None]:
    """In the trace of that step, else in the latest before it, else in any."""
    if "/" not in name:
        return None, None
    for trace in _traces(place, step):
        for op in trace.ops:
            if op.site == name:
                return trace, op
    return None, None


def _traces(place: Place, step: int | None) -> list[Trace]:
    """That of the step first, then those before it, the latest first, then the others."""
    if place.recorded is None:
        return []
    traces = [found for path in place.recorded.trace_files() if (found := place.recorded.trace(path)) is not None]
    return sorted(traces, key=lambda trace: (step is not None and trace.step > step, -trace.step))


def _of_op(place: Place, trace: Trace, op: OpRecord) -> Json:
    by_index = {other.index: other for other in trace.ops}
    after = [other for other in trace.ops if any(t.producer == op.index for t in other.inputs)]
    before = [by_index[t.producer] for t in op.inputs if t.producer in by_index]
    outside = inputs_of(trace)
    given = {outside[t.id]: t for t in op.inputs if t.producer is None and t.id in outside}
    weights = [tensor for tensor in op.inputs if tensor.name]
    return {
        "name": op.site, "kind": "op", "type": op.op, "module": op.module, "source": to_json(op.source),
        "training": op.training, "step": trace.step, "arguments": plain(dict(op.arguments)),
        "inputs": [_input(tensor, trace, by_index, outside) for tensor in op.inputs if not tensor.name],
        "outputs": [_port(tensor, _output(op, k), op.site, trace.step) for k, tensor in enumerate(op.outputs)],
        "parameters": [_port(tensor, f"{tensor.name}:value", None, trace.step) for tensor in weights],
        "before": list(dict.fromkeys([*given, *(other.site for other in before)])), "after": list(dict.fromkeys(other.site for other in after)),
        "around": {
            other.site: _port(other.outputs[0], _output(other, 0), other.site, trace.step)
            for other in (*before, *after) if other.outputs
        } | {name: _port(tensor, None, name, trace.step) for name, tensor in given.items()},
    }  # fmt: skip


def _of_input(place: Place, name: str, step: int | None) -> Json | None:
    """What came into a step from outside: the data, most often."""
    for trace in _traces(place, step) if name.startswith("input#") else ():
        for id, known in inputs_of(trace).items():
            if known != name:
                continue
            users = [op for op in trace.ops if any(t.id == id and t.producer is None for t in op.inputs)]
            tensor = next(t for t in users[0].inputs if t.id == id)
            return {
                "name": name, "kind": "input", "type": tensor.dtype, "module": "", "source": to_json(users[0].source), "training": None,
                "step": trace.step, "arguments": {}, "inputs": [], "outputs": [_port(tensor, None, name, trace.step)], "parameters": [],
                "before": [], "after": [op.site for op in users],
                "around": {op.site: _port(op.outputs[0], _output(op, 0), op.site, trace.step) for op in users if op.outputs},
            }  # fmt: skip
    return None


def _output(op: OpRecord, k: int) -> str:
    return f"{op.site}:out[{k}]" if len(op.outputs) > 1 else f"{op.site}:out"


def _input(tensor: TensorFact, trace: Trace, by_index: dict[int, OpRecord], outside: dict[int, str]) -> Json:
    maker = by_index.get(tensor.producer) if tensor.producer is not None else None
    if maker is None:
        return _port(tensor, None, outside.get(tensor.id), trace.step)
    place = next((n for n, other in enumerate(maker.outputs) if other.id == tensor.id), 0)
    return _port(tensor, _output(maker, place), maker.site, trace.step)


def _port(tensor: TensorFact, address: str | None, origin: str | None, step: int) -> Json:
    digest = plain(dict(tensor.stats)) if tensor.stats else None
    return {
        "address": address, "shape": list(tensor.shape), "dtype": tensor.dtype, "digest": digest, "from": origin,
        "step": step if digest else None,
    }  # fmt: skip


def _bare(address: str, origin: str | None) -> Json:
    """A tensor of which only the address is known."""
    return {"address": address, "shape": [], "dtype": "", "digest": None, "from": origin, "step": None}


def _of_model(place: Place, name: str, step: int | None) -> Json | None:
    """A module or a parameter of a stopped training that no step has shown yet."""
    known = atstop.model(place)
    if known is None:
        return None
    entry = next((module for module in known["modules"] if module["name"] == name), None)
    facts: Json = {
        "name": name, "kind": "module", "type": "", "module": name, "source": None, "training": None, "step": None,
        "arguments": {}, "inputs": [], "outputs": [], "parameters": [], "before": [], "after": [], "around": {},
    }  # fmt: skip
    if entry is not None:
        prefix = "" if entry.get("root") and f"{name}.weight" not in known["parameters"] else f"{name}."
        own = [one for one in known["parameters"] if one.startswith(prefix) and "." not in one[len(prefix) :]]
        before, after = compiled.around_module(place, name) or ([], [])
        return facts | {
            "type": entry["type"], "training": entry["training"],
            "before": before, "after": after, "around": _around(place, [*before, *after], step),
            "parameters": [_bare(f"{one}:value", None) for one in own],
        }  # fmt: skip
    if name in known["parameters"]:
        owner = name.rpartition(".")[0]
        return facts | {"kind": "parameter", "module": owner, "outputs": [_bare(f"{name}:value", name)]}
    return None


def _of_facts(place: Place, name: str, step: int | None) -> Json | None:
    """A module that gave no tensor of its own, as most of a compiled model: what it was made with, its parameters, and what stands around it."""
    facts = (place.facts.get("modules") or {}).get(name)
    if not isinstance(facts, dict):
        return None
    weights = _weights(place, name)
    latest = digests_of(place, weights, step)
    before, after = compiled.around_module(place, name) or ([], [])
    return {
        "name": name, "kind": "module", "type": str(facts.get("type", "")), "module": name, "source": plain(facts.get("made")),
        "training": facts.get("training"), "step": max((entry["step"] for entry in latest.values()), default=None),
        "arguments": plain(facts.get("settings") or {}), "inputs": [], "outputs": [],
        "parameters": [_site_port(site, latest) for site in weights],
        "before": before, "after": after, "around": _around(place, [*before, *after], step),
    }  # fmt: skip


def _weights(place: Place, name: str) -> list[Site]:
    """The module's own parameters."""
    prefix = f"{name}."
    return [
        site for site in place.sites.values()
        if site.kind is Kind.PARAMETER and site.role is Role.VALUE and site.name.startswith(prefix) and "." not in site.name[len(prefix):]
    ]  # fmt: skip


def _of_sites(place: Place, name: str, sites: list[Site], step: int | None) -> Json:
    first, weights = sites[0], _weights(place, name)
    latest = digests_of(place, [*sites, *weights], step)

    def port(site: Site) -> Json:
        return _site_port(site, latest)

    before, after, around = _neighbours(place, first, step)
    facts = (place.facts.get("modules") or {}).get(name) or {}
    return {
        "name": name, "kind": str(first.kind), "type": first.type,
        "module": name if first.kind is Kind.MODULE else name.rpartition(".")[0],
        "source": to_json(first.source), "training": facts.get("training"),
        "step": max((latest[s.address]["step"] for s in sites if s.address in latest), default=None),
        "arguments": plain(facts.get("settings") or {}),
        "inputs": [port(site) for site in sites if site.role in (Role.IN, Role.GRAD_IN)],
        "outputs": [port(site) for site in sites if site.role not in (Role.IN, Role.GRAD_IN)],
        "parameters": [port(site) for site in weights], "before": before, "after": after, "around": around,
    }  # fmt: skip


def _neighbours(place: Place, site: Site, step: int | None) -> tuple[list[str], list[str], dict[str, Json]]:
    """As a trace has them; of a module that no trace has, those that ran just before and after it."""
    for trace in _traces(place, step):
        if site.kind is Kind.PARAMETER and (users := users_of(trace, site.name)):
            return [], users, _with_ops(_around(place, users, step), trace, users)
        if site.kind is Kind.MODULE and (flow := around_module(trace, site.name)) is not None:
            names = [*flow[0], *flow[1]]
            return *flow, _with_ops(_around(place, names, step), trace, names)
    found = compiled.around_module(place, site.name) if site.kind is Kind.MODULE else None
    before, after = found or _in_order(place, site.name)
    return before, after, _around(place, [*before, *after], step)


def _with_ops(around: dict[str, Json], trace: Trace, names: list[str]) -> dict[str, Json]:
    """With the numbers of the trace where nothing else was observed."""
    for op in trace.ops:
        if op.site in names and op.site not in around and op.outputs:
            around[op.site] = _port(op.outputs[0], _output(op, 0), op.site, trace.step)
    outside = inputs_of(trace)
    for tensor in (t for op in trace.ops for t in op.inputs if outside.get(t.id) in names and t.producer is None):
        around.setdefault(outside[tensor.id], _port(tensor, None, outside[tensor.id], trace.step))
    return around


def _in_order(place: Place, name: str) -> tuple[list[str], list[str]]:
    outs = (site.name for site in place.sites.values() if site.kind is Kind.MODULE and site.role is Role.OUT)
    order = list(dict.fromkeys(outs))
    at = order.index(name) if name in order else -1
    return order[at - 1 : at] if at > 0 else [], order[at + 1 : at + 2] if at >= 0 else []


def _site_port(site: Site, latest: dict[str, Json]) -> Json:
    entry = latest.get(site.address)
    return {
        "address": site.address, "shape": list(site.shape), "dtype": site.dtype, "device": site.device, "from": site.name,
        "digest": entry["digest"] if entry else None, "step": entry["step"] if entry else None,
    }  # fmt: skip


def _around(place: Place, names: list[str], step: int | None) -> dict[str, Json]:
    """What neighbours give, where it was observed."""
    wanted = set(names[:MOST_AROUND])
    outs: dict[str, Site] = {}
    for site in place.sites.values():
        if site.name in wanted and site.role in (Role.OUT, Role.VALUE):
            outs.setdefault(site.name, site)
    latest = digests_of(place, outs.values(), step)
    return {name: _site_port(site, latest) for name, site in outs.items()}
