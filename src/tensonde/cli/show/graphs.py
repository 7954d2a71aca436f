"""`tensonde show --graphs`: what was compiled, how often, why again, and where compilation broke off."""

from __future__ import annotations

from typing import Any

from tensonde.cli.show.screen import console, print_json, table
from tensonde.model.documents import version_of
from tensonde.model.graph import GraphRecord
from tensonde.store.reader import Recording

_EVENTS = ("recompiled", "graph_break", "compiled_departs", "graphs_compared")


def show_graphs(recording: Recording, *, as_json: bool, limit: int) -> None:
    graphs = [(rank.rank, graph) for rank in recording.ranks for graph in rank.graphs]
    events = {kind: [event for event in recording.events if event.get("kind") == kind] for kind in _EVENTS}
    if as_json:
        shown_graphs = [_brief(rank, graph) for rank, graph in graphs]
        print_json({"schema": version_of("graphs"), "run": recording.name, "graphs": shown_graphs, **events})
        return
    out = console()
    if not graphs:
        out.print("no graph was compiled in this run")
        return
    shown = graphs[: limit or None]
    out.print(
        table(
            ("graph", "region", "phase", "backend", "nodes", "watched", "step", "compile s", "source", "shapes"),
            [
                (
                    f"compiled:{graph.number}", str(graph.region), graph.phase, graph.backend, str(_ops(graph)),
                    str(len(graph.watched)), str(graph.step), f"{graph.seconds:.1f}", graph.source or "",
                    "dynamic" if graph.dynamic else "static",
                )
                for _, graph in shown
            ],
            right=("nodes", "watched", "step", "compile s"),
        )
    )  # fmt: skip
    if len(graphs) > len(shown):
        out.print(f"… and {len(graphs) - len(shown)} more (--limit 0 shows all)")
    titles = {"recompiled": "Recompilations", "graph_break": "Graph breaks", "compiled_departs": "Wrong results"}
    for kind, title in titles.items():
        if events[kind]:
            out.print(f"\n{title}", style="bold")
            out.print(table(("where", "why"), [(_where(event), _why(event)) for event in events[kind]]))
    if events["graphs_compared"]:
        out.print(f"\n{_compared(events['graphs_compared'])}")


def _compared(events: list[dict[str, Any]]) -> str:
    """How the compiled calls that were also made uncompiled came out."""
    calls, departed = (sum(event[name] for event in events) for name in ("calls", "departed"))
    furthest = max(event["furthest"] for event in events)
    result = (
        f"{departed} departed" if departed else f"all equal within rounding (at most {furthest:.1e} of the norm apart)"
    )
    return f"compared with the same graphs uncompiled: {calls} calls in {len(events)} steps, {result}"


def _brief(rank: int, graph: GraphRecord) -> dict[str, Any]:
    return {
        "id": f"compiled:{graph.number}", "rank": rank, "region": graph.region, "phase": graph.phase,
        "backend": graph.backend, "nodes": _ops(graph), "watched": list(graph.watched), "step": graph.step,
        "seconds": graph.seconds, "source": graph.source, "dynamic": graph.dynamic, "guards": list(graph.guards),
        "reason": graph.reason,
    }  # fmt: skip


def _ops(graph: GraphRecord) -> int:
    return sum(kind == "op" for kind in graph.nodes["kind"])


def _where(event: dict[str, Any]) -> str:
    source = event.get("source") or event
    return f"{source.get('file')}:{source.get('line')}" if source.get("file") else str(event.get("function") or "?")


def _why(event: dict[str, Any]) -> str:
    if event["kind"] == "compiled_departs":
        return f"{event.get('site')} departs by {event.get('distance', 0.0):.2g} of its norm"
    return str(event.get("reason", ""))
