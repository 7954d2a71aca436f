"""A compiled graph as it is recorded: its nodes in execution order, how they depend on each other, and how it came to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tensonde.model.site import SourceLine


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """`number` counts the compiled graphs of a process; `region` is the same for a forward graph and its backward graph.

    `nodes`, `edges` and `scopes` are columns, as the hub's graph endpoint has them: nodes {name, kind, type, scope, source,
    phase, op, site; given: what an input is in the program}, edges {from, to} (positions of nodes), scopes {name, type, parent} (−1: none). `kind` is input,
    parameter, op or output. `watched` are the nodes that the graph digests by itself. `reason` says why it was compiled
    again ("" the first time); `guards` are what its validity hangs on.
    """

    number: int
    region: int
    phase: str
    backend: str
    step: int
    source: str | None
    nodes: Mapping[str, Sequence[Any]]
    edges: Mapping[str, Sequence[int]]
    scopes: Mapping[str, Sequence[Any]]
    watched: Sequence[str] = ()
    guards: Sequence[str] = ()
    reason: str = ""
    seconds: float = 0.0
    dynamic: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


Outcome = Literal["same", "rounding", "departs", "skipped"]


@dataclass(frozen=True, slots=True)
class GraphCheck:
    """A compiled graph against itself, run uncompiled on the same inputs: the same bit by bit, the same but for rounding, or not.

    `distance` is relative to the norm; of a graph that departs, at its first node that does (`site`, `source`; `exact`: found by
    compiling parts of the graph, else it is the first output). `why` says what stood in the way of comparing.
    """

    graph: int
    phase: str
    backend: str
    nodes: int
    outcome: Outcome
    distance: float = 0.0
    max_abs: float = 0.0
    site: str = ""
    source: SourceLine | None = None
    exact: bool = False
    why: str = ""
