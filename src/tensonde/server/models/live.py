"""What goes over /api/live, either way."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from tensonde.server.models.common import Health, Model, Number
from tensonde.server.models.digests import Site
from tensonde.server.models.reports import Event, Finding
from tensonde.server.models.runs import Hit, RankState, Run, Stop


class Subscription(Model):
    run: str
    rank: str


class LiveRequest(Model):
    """What a browser sends on /api/live."""

    subscribe: Subscription | None = None
    unsubscribe: Subscription | None = None


class LiveMessage(Model):
    """What the hub sends on /api/live: one JSON text frame each, told apart by `type`."""

    model_config = ConfigDict(extra="allow")
    type: Literal[
        "runs", "state", "stop", "hit", "finding", "event", "digests", "scalars", "sites", "graph", "lagged", "error"
    ]
    run: str | None = None
    rank: str | None = None
    runs: list[Run] | None = None
    state: RankState | None = None
    stop: Stop | None = None
    hit: Hit | None = None
    finding: Finding | None = None
    event: Event | None = None
    step: int | None = None
    sites: list[int] | None = None
    status: list[Health] | None = None
    absmax: list[Number] | None = None
    norm: list[Number] | None = None
    dropped: int | None = None
    values: dict[str, Number] | None = None
    count: int | None = None
    new: list[Site] | None = None
    error: str | None = None
