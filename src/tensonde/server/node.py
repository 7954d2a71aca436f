"""One node of the graph: what went in, what came out, and its neighbours."""

from __future__ import annotations

from typing import Any

from tensonde.model.graph import GraphRecord
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.program.lines import from_text, to_json
from tensonde.server import compiled
from tensonde.server.place import Place
from tensonde.server.reading import latest_digests
from tensonde.server.refusals import NotFound
from tensonde.store.files import plain
from tensonde.watch.suggest import nearest

Json = dict[str, Any]
_SUFFIXES = (" (backward)", " (gradient)")


def node(place: Place, name: str, step: int | None) -> Json:
    """An op of a trace, a module, a parameter or the loss. Raises NotFound with a sentence."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    trace, op = _find_op(place, name, step)
    if op is not None and trace is not None:
        return _of_op(trace, op)
    sites = [site for site in place.sites.values() if site.name == name]
    found = compiled.find(place, name)
    if found is not None and (not sites or "/" in name):
        return _of_compiled(place, *found, sites, step)
    if not sites:
        known = {site.name for site in place.sites.values()}
        close = nearest(name, sorted(known))
        hint = f"; the nearest are {', '.join(close)}" if close else ""
        raise NotFound(f"there is no node {name!r} in {place.name}{hint}.")
    return _of_sites(place, name, sites, step)


def _of_compiled(place: Place, graph: GraphRecord, node: int, sites: list[Site], step: int | None) -> Json:
    """A node of a compiled graph: its digests are there where the graph computes them by itself."""
    column = graph.nodes
    before, after = compiled.neighbours(graph, node)
    scope = column["scope"][node]
    name = compiled.names(graph)[node]
    shown = _of_sites(place, name, sites, step) if sites else {}
    return {
        "name": name, "kind": column["kind"][node], "type": column["type"][node],
        "module": graph.scopes["name"][scope] if scope >= 0 else "",
        "source": to_json(from_text(str(column["source"][node] or ""))),
        "training": None, "step": shown.get("step", graph.step), "arguments": {},
        "inputs": shown.get("inputs", []), "outputs": shown.get("outputs", []), "parameters": [],
        "before": before, "after": after,
    }  # fmt: skip


def _find_op(place: Place, name: str, step: int | None) -> tuple[Trace | None, OpRecord | None]:
    """In the trace of that step, else in the latest before it, else in any."""
    if "/" not in name or place.recorded is None:
        return None, None
    traces = [found for path in place.recorded.trace_files() if (found := place.recorded.trace(path)) is not None]
    order = sorted(traces, key=lambda trace: (step is not None and trace.step > step, -trace.step))
    for trace in order:
        for op in trace.ops:
            if op.site == name:
                return trace, op
    return None, None


def _of_op(trace: Trace, op: OpRecord) -> Json:
    by_index = {other.index: other for other in trace.ops}
    users = [other.site for other in trace.ops if any(t.producer == op.index for t in other.inputs)]
    weights = [tensor for tensor in op.inputs if tensor.name]
    many = len(op.outputs) > 1
    return {
        "name": op.site, "kind": "op", "type": op.op, "module": op.module, "source": to_json(op.source),
        "training": op.training, "step": trace.step, "arguments": plain(dict(op.arguments)),
        "inputs": [_input(tensor, op, k, by_index) for k, tensor in enumerate(op.inputs) if not tensor.name],
        "outputs": [
            _port(tensor, f"{op.site}:out[{k}]" if many else f"{op.site}:out", op.site)
            for k, tensor in enumerate(op.outputs)
        ],
        "parameters": [_port(tensor, f"{tensor.name}:value", None) for tensor in weights],
        "before": list(dict.fromkeys(by_index[t.producer].site for t in op.inputs if t.producer in by_index)),
        "after": list(dict.fromkeys(users)),
    }  # fmt: skip


def _input(tensor: TensorFact, op: OpRecord, k: int, by_index: dict[int, OpRecord]) -> Json:
    maker = by_index.get(tensor.producer) if tensor.producer is not None else None
    if maker is None:
        return _port(tensor, None, None)
    place = next((n for n, other in enumerate(maker.outputs) if other.id == tensor.id), 0)
    address = f"{maker.site}:out[{place}]" if len(maker.outputs) > 1 else f"{maker.site}:out"
    return _port(tensor, address, maker.site)


def _port(tensor: TensorFact, address: str | None, origin: str | None) -> Json:
    digest = plain(dict(tensor.stats)) if tensor.stats else None
    return {"address": address, "shape": list(tensor.shape), "dtype": tensor.dtype, "digest": digest, "from": origin}


def _of_sites(place: Place, name: str, sites: list[Site], step: int | None) -> Json:
    first = sites[0]
    latest = {entry["address"]: entry for entry in latest_digests(place, "", step, 1 << 30)} if sites else {}

    def port(site: Site) -> Json:
        entry = latest.get(site.address)
        return {
            "address": site.address, "shape": list(site.shape), "dtype": site.dtype,
            "digest": entry["digest"] if entry else None, "from": name,
        }  # fmt: skip

    inputs = [port(site) for site in sites if site.role in (Role.IN, Role.GRAD_IN)]
    outputs = [port(site) for site in sites if site.role not in (Role.IN, Role.GRAD_IN)]
    prefix = f"{name}."
    weights = [
        port(site) for site in place.sites.values()
        if site.kind is Kind.PARAMETER and site.role is Role.VALUE and site.name.startswith(prefix) and "." not in site.name[len(prefix):]
    ]  # fmt: skip
    modules = [site.name for site in place.sites.values() if site.kind is Kind.MODULE and site.role is Role.OUT]
    order = list(dict.fromkeys(modules))
    at = order.index(name) if name in order else -1
    facts = (place.facts.get("modules") or {}).get(name) or {}
    return {
        "name": name, "kind": str(first.kind), "type": first.type,
        "module": name if first.kind is Kind.MODULE else name.rpartition(".")[0],
        "source": to_json(first.source), "training": facts.get("training"),
        "step": max((latest[s.address]["step"] for s in sites if s.address in latest), default=None),
        "arguments": plain(facts.get("settings") or {}), "inputs": inputs, "outputs": outputs, "parameters": weights,
        "before": order[at - 1 : at] if at > 0 else [], "after": order[at + 1 : at + 2] if at >= 0 else [],
    }  # fmt: skip
