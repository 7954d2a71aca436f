"""One of two runs: what its recording tells that can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensonde.errors import RecordingError
from tensonde.model.trace import Trace
from tensonde.store.reader import Rank, Recording

_WHOLE = ("first", "following")


@dataclass(frozen=True)
class Side:
    """`losses` and `rates` (learning rates by group) are by step."""

    label: str
    traces: Mapping[int, Trace]
    facts: Mapping[str, Any]
    losses: Mapping[int, float]
    rates: Mapping[int, Mapping[str, float]]
    gradients: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Norms of the parameters' gradients, by name and step."""
    exception: str = ""
    means: Mapping[int, float] = field(default_factory=dict)
    """Of all losses of a step; `losses` has the first of each."""
    framework: str = ""
    """`torch`, `mindspore`; "" where the recording does not say."""
    native: Mapping[str, str] = field(default_factory=dict)
    """The names that parameters have in the program, where they go by others here (`dialect.py`)."""

    @property
    def modules(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self.facts.get("modules") or {}
        return found

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self.facts.get("parameters") or {}
        return found


def read_side(path: Path, label: str = "") -> Side:
    """Raises RecordingError where there is nothing to compare."""
    recording = Recording.open(path)
    if not recording.ranks:
        raise RecordingError(f"{path} holds no training: no module was called and no optimizer stepped in it")
    return side_of(recording.ranks[0], label or path.name)


def has_traces(rank: Rank) -> bool:
    """Whether a step was traced from its beginning."""
    return any(trace.reason in _WHOLE for trace in rank.traces)


def side_of(rank: Rank, label: str) -> Side:
    traces = {trace.step: trace for trace in rank.traces if trace.reason in _WHOLE}
    losses: dict[int, list[float]] = {}
    rates: dict[int, dict[str, float]] = {}
    table = rank.scalars()
    columns = (table.column(name).to_pylist() for name in ("step", "name", "value"))
    for step, name, value in zip(*columns, strict=True):
        if name == "loss":
            losses.setdefault(step, []).append(value)
        elif name.startswith("lr/"):
            rates.setdefault(step, {})[name.removeprefix("lr/")] = value
    exception = (rank.session.get("exit") or {}).get("exception") or {}
    return Side(
        label,
        traces,
        rank.facts,
        {step: values[0] for step, values in sorted(losses.items())},
        rates,
        _gradients(rank),
        str(exception.get("type", "")) if isinstance(exception, Mapping) else "",
        {step: sum(values) / len(values) for step, values in sorted(losses.items())},
        str(rank.session.get("framework", "")).partition(" ")[0],
    )


def _gradients(rank: Rank) -> dict[str, dict[int, float]]:
    names = {n: s.name for n, s in rank.sites.items() if s.kind == "parameter" and s.role == "grad"}
    table = rank.digests(columns=["step", "site", "norm"])
    found: dict[str, dict[int, float]] = {}
    columns = (table.column(name).to_pylist() for name in ("step", "site", "norm"))
    for step, site, norm in zip(*columns, strict=True):
        if site in names and math.isfinite(norm):
            found.setdefault(names[site], {})[step] = norm
    return found
