"""Compiled graphs of a recording, as sources of the graph endpoint and of node details.

One source a compiled region: its forward graph and, where there is one, its backward graph. The recording holds them in
the endpoint's own columns.
"""

from __future__ import annotations

from typing import Any

from tensonde.model.graph import GraphRecord
from tensonde.server.place import Place

Json = dict[str, Any]
SAVED = " (saved)"
"""What the name of a tensor ends with that the forward graph keeps for the backward graph."""
_COLUMNS = ("name", "kind", "type", "scope", "source", "phase", "op", "site")


def regions(place: Place) -> dict[str, list[GraphRecord]]:
    """By the id of the source, in the order compiled; the forward graph first."""
    found: dict[str, list[GraphRecord]] = {}
    for graph in place.recorded.graphs() if place.recorded is not None else []:
        found.setdefault(f"compiled:{graph.region}", []).append(graph)
    return {id: sorted(graphs, key=lambda graph: graph.phase == "backward") for id, graphs in found.items()}


def label(graphs: list[GraphRecord]) -> str:
    first = graphs[0]
    where = f" {first.source.rpartition('/')[2]}" if first.source else ""
    again = ", compiled again" if first.reason else ""
    return f"compiled{where} ({first.backend}{again})"


def names(graph: GraphRecord) -> list[str]:
    """As in eager mode where the node has an address (`1/relu#0`), as the program calls an input (`x`), else the compiler's own (`primals_1`)."""
    given = graph.nodes.get("given") or [None] * len(graph.nodes["name"])
    rows = zip(graph.nodes["site"], given, graph.nodes["name"], strict=True)
    return [site.rpartition(":")[0] if site else held or name for site, held, name in rows]


def largest(place: Place) -> tuple[str, int]:
    """The source with the most ops in its forward graph, and how many."""
    sizes = {
        id: sum(kind == "op" for graph in graphs if graph.phase != "backward" for kind in graph.nodes["kind"])
        for id, graphs in regions(place).items()
    }
    return max(sizes.items(), key=lambda pair: pair[1], default=("", 0))


def columns(graphs: list[GraphRecord], phase: str) -> Json:
    """Nodes, edges and scopes of those of the graphs that belong to the phase, one after the other."""
    nodes: dict[str, list[Any]] = {name: [] for name in (*_COLUMNS, "health")}
    edges: dict[str, list[int]] = {"from": [], "to": []}
    scopes: dict[str, list[Any]] = {"name": [], "type": [], "parent": []}
    places: dict[str, int] = {}
    for graph in graphs:
        if phase not in ("all", graph.phase):
            continue
        base = len(nodes["name"])
        scope_of = _scopes(graph, scopes, places)
        for name in _COLUMNS:
            nodes[name] += names(graph) if name == "name" else graph.nodes[name]
        nodes["scope"][base:] = [scope_of[scope] if scope >= 0 else -1 for scope in graph.nodes["scope"]]
        nodes["health"] += ["none"] * len(graph.nodes["name"])
        for origin, target in flow(graph, graphs):
            edges["from"].append(base + origin)
            edges["to"].append(base + target)
            if nodes["kind"][base + origin] == "parameter" and nodes["scope"][base + origin] < 0:
                nodes["scope"][base + origin] = nodes["scope"][
                    base + target
                ]  # a constant of the compiler: with what takes it
    return {"nodes": nodes, "edges": edges, "scopes": scopes}


def flow(graph: GraphRecord, graphs: list[GraphRecord]) -> list[tuple[int, int]]:
    """The edges, without those to the output that only save a tensor for the backward graph of the region: the program does not get it."""
    pairs = list(zip(graph.edges["from"], graph.edges["to"], strict=True))
    if graph.phase == "backward":
        return pairs
    saved = {
        name.removesuffix(SAVED)
        for other in graphs if other.phase == "backward"
        for name, kind in zip(names(other), other.nodes["kind"], strict=True) if kind != "op"
    }  # fmt: skip
    known, kinds = names(graph), graph.nodes["kind"]
    given = [(origin, target) for origin, target in pairs if kinds[target] == "output"]
    inner = [(origin, target) for origin, target in pairs if kinds[target] != "output"]
    used = {origin for origin, _ in inner}
    # Something is given back. Where all of it is saved as well, it is what nothing else takes.
    plain = [pair for pair in given if known[pair[0]] not in saved]
    last = [pair for pair in given if pair[0] not in used and kinds[pair[0]] == "op"]
    return [*inner, *(plain or last or given)]


def _scopes(graph: GraphRecord, into: dict[str, list[Any]], places: dict[str, int]) -> list[int]:
    """Where the scopes of this graph are among all; one name is one scope."""
    found: list[int] = []
    for name, type, parent in zip(graph.scopes["name"], graph.scopes["type"], graph.scopes["parent"], strict=True):
        if name not in places:
            places[name] = len(into["name"])
            into["name"].append(name)
            into["type"].append(type)
            into["parent"].append(found[parent] if 0 <= parent < len(found) else -1)
        found.append(places[name])
    return found


def find(place: Place, name: str) -> tuple[GraphRecord, int] | None:
    """The node of that name, in the first graph that has one."""
    for graphs in regions(place).values():
        for graph in graphs:
            known = names(graph)
            if name in known:
                return graph, known.index(name)
    return None


def neighbours(place: Place, graph: GraphRecord, node: int) -> tuple[list[str], list[str]]:
    known = names(graph)
    pairs = flow(graph, regions(place).get(f"compiled:{graph.region}", []))
    before = dict.fromkeys(known[origin] for origin, target in pairs if target == node)
    after = dict.fromkeys(known[target] for origin, target in pairs if origin == node)
    return list(before), list(after)


def order(place: Place) -> list[str]:
    """The modules of the forward graphs, in the order of their first ops, each after those around it."""
    found: dict[str, None] = {}
    for graphs in regions(place).values():
        for graph in graphs:
            if graph.phase == "backward":
                continue
            for kind, scope in zip(graph.nodes["kind"], graph.nodes["scope"], strict=True):
                if kind == "op" and scope >= 0:
                    parts = graph.scopes["name"][scope].split(".")
                    found.update(dict.fromkeys(".".join(parts[:k]) for k in range(1, len(parts) + 1)))
    return list(found)


def around_module(place: Place, module: str) -> tuple[list[str], list[str]] | None:
    """The nodes that feed a module and those that it feeds, in the first forward graph that has ops of it."""
    for graphs in regions(place).values():
        for graph in graphs:
            if graph.phase == "backward":
                continue
            scopes = {k for k, name in enumerate(graph.scopes["name"]) if f"{name}.".startswith(f"{module}.")}
            known, kinds, inside = names(graph), graph.nodes["kind"], [at in scopes for at in graph.nodes["scope"]]
            if not any(here and kind == "op" for here, kind in zip(inside, kinds, strict=True)):
                continue
            pairs = flow(graph, graphs)
            before = (known[a] for a, b in pairs if inside[b] and not inside[a] and kinds[a] != "parameter")
            after = (known[b] for a, b in pairs if inside[a] and not inside[b])
            return list(dict.fromkeys(before)), list(dict.fromkeys(after))
    return None
