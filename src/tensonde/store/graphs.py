"""Compiled graphs in a recording: one JSON file each, `graphs/000000.json`."""

from __future__ import annotations

from pathlib import Path

from tensonde.model.graph import GraphRecord
from tensonde.store.damage import read_file
from tensonde.store.files import dump_json, write_numbered

FOLDER = "graphs"
NODES = ("name", "kind", "type", "scope", "source", "phase", "op", "site")
EDGES = ("from", "to")
SCOPES = ("name", "type", "parent")


def write_graph(folder: Path, graph: GraphRecord) -> Path:
    """Raises OSError."""
    return write_numbered(folder / FOLDER, graph.number, dump_json(graph) + b"\n")


def read_graph(path: Path) -> GraphRecord:
    """Raises OSError, or ValueError where the file is damaged."""
    import msgspec

    try:
        graph = msgspec.json.decode(read_file(path), type=GraphRecord, strict=False)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    for what, columns, wanted in (
        ("nodes", graph.nodes, NODES),
        ("edges", graph.edges, EDGES),
        ("scopes", graph.scopes, SCOPES),
    ):
        if missing := [name for name in wanted if name not in columns]:
            raise ValueError(f"its {what} have no {missing[0]}")
        if len({len(columns[name]) for name in wanted}) > 1:
            raise ValueError(f"the columns of its {what} differ in length")
    nodes, scopes = len(graph.nodes["name"]), len(graph.scopes["name"])
    if not all(0 <= end < nodes for name in EDGES for end in graph.edges[name]):
        raise ValueError("an edge leads to a node that is not there")
    if not all(isinstance(k, int) and -1 <= k < scopes for k in (*graph.nodes["scope"], *graph.scopes["parent"])):
        raise ValueError("a node is in a scope that is not there")
    return graph
