"""Traces in a recording: one JSON file each, `traces/000000.json`."""

from __future__ import annotations

from pathlib import Path

from tensonde.model.trace import Trace
from tensonde.store.damage import read_file
from tensonde.store.files import write_numbered

FOLDER = "traces"


def write_trace(folder: Path, trace: Trace) -> Path:
    """Writes the trace beside the others. Raises OSError."""
    parent = folder / FOLDER
    return write_numbered(parent, len(list(parent.glob("*.json"))), trace)


def read_trace(path: Path) -> Trace:
    """Raises OSError, or ValueError where the file is damaged. Numbers that JSON cannot hold are text ("NaN") in the file."""
    import msgspec

    try:
        trace = msgspec.json.decode(read_file(path), type=Trace, strict=False)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    tensors = (fact for op in trace.ops for fact in (*op.inputs, *op.outputs))
    if any(fact.producer is not None and not 0 <= fact.producer < len(trace.ops) for fact in tensors):
        raise ValueError("an op takes a tensor from an op that is not there")
    return trace
