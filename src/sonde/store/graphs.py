"""Compiled graphs in a recording: one JSON file each, `graphs/000000.json`."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

from sonde.model.graph import GraphRecord
from sonde.store.documents import read_json
from sonde.store.files import dump_json, replace_file

FOLDER = "graphs"


def write_graph(folder: Path, graph: GraphRecord) -> Path:
    """Raises OSError."""
    parent = folder / FOLDER
    parent.mkdir(exist_ok=True)
    path = parent / f"{graph.number:06d}.json"
    replace_file(path, dump_json(asdict(graph)) + b"\n")
    return path


def read_graph(path: Path) -> GraphRecord:
    """Raises ValueError, KeyError or TypeError where the file is damaged."""
    entry = read_json(path, dict)
    known = {one.name for one in fields(GraphRecord)}
    return GraphRecord(**{name: value for name, value in entry.items() if name in known})
