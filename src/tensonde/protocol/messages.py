"""What an agent and the hub say to each other, over one WebSocket, one msgpack message a binary frame.

Messages with a `seq` are never lost: the agent keeps them until the hub has acknowledged them, and sends them again after a reconnect; the hub
ignores what it has seen. The others may be coalesced or dropped, and are counted. A request is answered by one reply with its `id`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PROTOCOL = 1
LARGEST_FRAME = 16 << 20

Json = dict[str, Any]


class Message(msgspec.Struct, tag_field="type", kw_only=True):
    pass


# -- agent to hub --------------------------------------------------------------------------------


class Hello(Message, tag="hello"):
    """The first frame. `session` tells this process from all others; `machine` whether the hub may read `path`."""

    protocol: int
    session: str
    run: str
    name: str
    rank: int
    rank_name: str
    path: str
    machine: str
    script: str = ""
    started: str = ""
    facts: Json = {}
    capabilities: list[str] = []
    kept: int = 0
    """The last `seq` so far: what the hub gets up to it happened before this connection."""


class Sites(Message, tag="sites"):
    """Sites that are new, in the form of the recording."""

    sites: list[Json]


class Digests(Message, tag="digests"):
    """The latest digest of each site since the last such message: rows in the recording's layout, and their places (int64) in it."""

    ords: bytes
    rows: bytes
    dropped: int = 0


class Scalars(Message, tag="scalars"):
    """Names and (step, value) pairs."""

    values: dict[str, list[tuple[int, float]]]


class State(Message, tag="state"):
    """Where the training is."""

    step: int
    phase: str = ""
    epoch: int | None = None
    steps_per_second: float | None = None
    overhead: float | None = None
    last_step_at: str | None = None
    together: Json | None = None
    """The process group that this rank is in: how many ranks (`world`), `backend`, `timeout` in seconds. None where there is none."""
    waiting: Json | None = None
    """The collective that it has been in for more than a moment: `what`, `line`, `since` (a time of day)."""
    memory: int | None = None
    """Bytes that the process holds in main memory."""


class Hit(Message, tag="hit"):
    seq: int
    ord: int
    hit: Json


class Event(Message, tag="event"):
    seq: int
    event: Json


class Stopped(Message, tag="stopped"):
    seq: int
    stop: Json


class Resumed(Message, tag="resumed"):
    seq: int


class Bye(Message, tag="bye"):
    """The training is over, and its recording closed."""

    seq: int
    exit: Json = {}


class Reply(Message, tag="reply"):
    """`error` is a sentence where it went wrong, and `status` what HTTP calls that. `content` is for arrays."""

    id: int
    result: Any = None
    error: str = ""
    status: int = 200
    content: bytes = b""


class Ping(Message, tag="ping"):
    """Still there."""


# -- hub to agent --------------------------------------------------------------------------------


class Welcome(Message, tag="welcome"):
    """`ack` is the last `seq` that the hub knows of this session: 0 for a hub that has never seen it."""

    protocol: int
    ack: int
    clients: int


class Ack(Message, tag="ack"):
    seq: int


class Clients(Message, tag="clients"):
    """How many people and programs look on."""

    count: int


RequestKind = Literal[
    "where", "pause", "pause_at", "hold", "release", "resume", "watchpoints", "watch", "rewatch", "unwatch", "recommended",
    "breakpoints", "break", "unbreak", "command", "complete", "assign", "shape", "tensor", "tensors", "digests", "model", "terminate",
]  # fmt: skip


class Request(Message, tag="request"):
    id: int
    kind: RequestKind
    arguments: Json = {}


FromAgent = Hello | Sites | Digests | Scalars | State | Hit | Event | Stopped | Resumed | Bye | Reply | Ping
FromHub = Welcome | Ack | Clients | Request
Kept = Hit | Event | Stopped | Resumed | Bye
Progress = State | Stopped | Resumed | Bye
"""Those that change the state of the training, as onlookers see it."""
