"""Traces in a recording: one JSON file each, `traces/000000.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensonde.model.moment import Phase
from tensonde.model.site import SourceLine
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace, WeightRecord
from tensonde.store.documents import read_json
from tensonde.store.files import write_numbered

FOLDER = "traces"


def write_trace(folder: Path, trace: Trace) -> Path:
    """Writes the trace beside the others. Raises OSError."""
    parent = folder / FOLDER
    return write_numbered(parent, len(list(parent.glob("*.json"))), trace)


def read_trace(path: Path) -> Trace:
    """Raises ValueError, KeyError or TypeError where the file is damaged."""
    entry = read_json(path, dict)
    return Trace(
        step=int(entry["step"]),
        reason=entry["reason"],
        ops=tuple(_op(op) for op in entry["ops"]),
        exact=bool(entry["exact"]),
        loss=entry["loss"],
        notes=tuple(entry["notes"]),
        calls=tuple(_call(call) for call in entry.get("calls", ())),
        weights=tuple(_weight(weight) for weight in entry.get("weights", ())),
    )


def _op(entry: Mapping[str, Any]) -> OpRecord:
    source = entry["source"]
    return OpRecord(
        **{
            **entry,
            "source": SourceLine(**source) if source else None,
            "inputs": tuple(_tensor(tensor) for tensor in entry["inputs"]),
            "outputs": tuple(_tensor(tensor) for tensor in entry["outputs"]),
            "phase": Phase(entry["phase"]),
            "gradient": _numbers(entry["gradient"]),
        }
    )


def _call(entry: Mapping[str, Any]) -> CallRecord:
    tensors = {key: tuple(_tensor(tensor) for tensor in entry[key]) for key in ("inputs", "outputs", "state")}
    return CallRecord(**{**entry, **tensors})


def _weight(entry: Mapping[str, Any]) -> WeightRecord:
    keys = ("before", "raw", "gradient", "after", "moved")
    numbers = {key: _numbers(entry[key]) for key in keys if key in entry}
    return WeightRecord(**{**entry, "shape": tuple(entry["shape"]), **numbers})


def _tensor(entry: Mapping[str, Any]) -> TensorFact:
    return TensorFact(**{**entry, "shape": tuple(entry["shape"]), "stats": _numbers(entry["stats"])})


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """Numbers that JSON cannot hold are text ("NaN") in the file."""
    return {name: float(value) for name, value in entry.items()}
