"""Compiled graphs in a recording: one JSON file each, `graphs/000000.json`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from tensonde.model.graph import GraphRecord
from tensonde.store.documents import read_json
from tensonde.store.files import write_numbered

FOLDER = "graphs"


def write_graph(folder: Path, graph: GraphRecord) -> Path:
    """Raises OSError."""
    return write_numbered(folder / FOLDER, graph.number, graph)


def read_graph(path: Path) -> GraphRecord:
    """Raises ValueError, KeyError or TypeError where the file is damaged."""
    entry = read_json(path, dict)
    known = {one.name for one in fields(GraphRecord)}
    return GraphRecord(**{name: value for name, value in entry.items() if name in known})
