"""The graph of a step by columns, and one of its nodes in full."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tensonde.server.models.common import Health, Model, Number, Source


class GraphSource(Model):
    id: str
    label: str


class GraphNodes(Model):
    """Columns. `scope` is an index into the scopes, -1 for none; `site` the address of the node's first output.

    `health` is that of what it gave in this trace, bad where that has NaN or Inf, none where the trace does not tell.
    """

    name: list[str]
    kind: list[str]
    type: list[str]
    scope: list[int]
    source: list[str | None]
    phase: list[str]
    op: list[str]
    site: list[str | None]
    health: list[Health] = []


class GraphEdges(Model):
    from_: list[int] = Field(alias="from")
    to: list[int]


class GraphScopes(Model):
    name: list[str]
    type: list[str]
    parent: list[int]


class Graph(Model):
    source: str
    step: int | None = None
    sources: list[GraphSource]
    nodes: GraphNodes
    edges: GraphEdges
    scopes: GraphScopes


class Port(Model):
    """A tensor that goes into or comes out of a node. `from` is the node that made it.

    `step` is that of the digest; `live` says that it was made from the tensor as it is now, in the stopped training, and `health` what it tells.
    """

    address: str | None = None
    shape: list[int] = []
    dtype: str = ""
    device: str = ""
    digest: dict[str, Number | None] | None = None
    from_: str | None = Field(default=None, alias="from")
    step: int | None = None
    live: bool = False
    health: str = ""
    note: str = ""


class Node(Model):
    name: str
    kind: str
    type: str
    module: str = ""
    source: Source | None = None
    training: bool | None = None
    step: int | None = None
    arguments: dict[str, Any] = {}
    inputs: list[Port] = []
    outputs: list[Port] = []
    parameters: list[Port] = []
    before: list[str] = []
    after: list[str] = []
    around: dict[str, Port] = {}
    """What the neighbours give, by their names."""
