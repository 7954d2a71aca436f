"""Every request of a hub: where it runs, which function answers it, and which capabilities it gives a client.

A new request is a word of `protocol.messages.RequestKind`, a row here, and a function in `at_once` or `at_stop`. The capabilities
that an agent declares and docs/requests.md are made from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tensonde.protocol.messages import Request, RequestKind
from tensonde.session.serving import at_once, at_stop
from tensonde.session.serving.answers import Answer

if TYPE_CHECKING:
    from tensonde.session.serving.service import Service


class Where(StrEnum):
    """When a request is answered, and by which thread."""

    AT_ONCE = "at once"
    """In the link's thread, as it arrives."""
    BETWEEN_STEPS = "between steps"
    """In the training thread: after the current step, or at the stop that it is in."""
    AT_STOP = "at a stop"
    """In the training thread, during a stop; refused while the training runs."""


@dataclass(frozen=True, slots=True)
class Row:
    where: Where
    handler: Callable[[Service, Request], Answer | None]
    """None where another request's answer is the answer."""
    tells: str
    capabilities: tuple[str, ...] = ()
    status: int = 422
    """What HTTP calls a request that a TensondeError refuses."""


_ONCE, _STEPS, _STOP = Where.AT_ONCE, Where.BETWEEN_STEPS, Where.AT_STOP
_WAYS = ("step", "next", "nextop", "until", "finish")

REQUESTS: dict[RequestKind, Row] = {
    "where": Row(_ONCE, at_once.where, "the current step, and whether the training is stopped", ("read",)),
    "pause": Row(_ONCE, at_once.pause, "stops at the end of a step", ("pause",)),
    "pause_at": Row(_ONCE, at_once.pause_at, "stops when `step` begins, as all ranks do; `go` ends an earlier stop"),
    "hold": Row(_ONCE, at_once.hold, "stops at the end of the current step, because another rank has stopped"),
    "release": Row(_ONCE, at_once.release, "continues, and forgets requested stops; `why` is shown to the user"),
    "resume": Row(_STOP, at_stop.resume, "continues by one `kind` of step, `count` times or until `sites`, at most until the step `limit` begins", _WAYS),
    "terminate": Row(_ONCE, at_once.terminate, "ends the training after its step", ("terminate",)),
    "watchpoints": Row(_ONCE, at_once.watchpoints, "lists the watchpoints", ("watchpoints",)),
    "watch": Row(_ONCE, at_once.watch, "adds a watchpoint: `sites`, `condition`, `action`"),
    "rewatch": Row(_ONCE, at_once.rewatch, "changes the watchpoint `id`"),
    "unwatch": Row(_ONCE, at_once.unwatch, "removes the watchpoint `id`"),
    "recommended": Row(_ONCE, at_once.recommended, "adds the recommended watchpoints"),
    "breakpoints": Row(_ONCE, at_once.breakpoints, "lists the breakpoints", ("breakpoints",)),
    "break": Row(_STEPS, at_stop.add_breakpoint, "adds a breakpoint: `sites`, or `file` and `line`"),
    "unbreak": Row(_STEPS, at_stop.remove_breakpoint, "removes the breakpoint `id`"),
    "tensors": Row(_STOP, at_stop.tensors, "lists the tensors that can be read", ("tensors",)),
    "shape": Row(_STOP, at_stop.shape, "shape and type of the tensor at `address`", status=409),
    "tensor": Row(_STOP, at_stop.tensor, "a part of the tensor at `address`", status=409),
    "digests": Row(_STOP, at_stop.digests, "statistics of the tensors at `addresses`, as they are now", ("digests",)),
    "model": Row(_STOP, at_stop.model, "modules and parameters, even before the first step", ("model",)),
    "assign": Row(_STOP, at_stop.assign, "sets elements of the tensor at `address` to `value`", ("assign",)),
    "command": Row(_STOP, at_stop.command, "runs a `line` of the terminal debugger; with `together`, a command that continues is only reported, so that all ranks continue together", ("command",)),
    "complete": Row(_STOP, at_stop.complete, "completes the beginning of such a line"),
}  # fmt: skip
CAPABILITIES = [word for row in REQUESTS.values() for word in row.capabilities]
"""Declared by every agent; the web UI shows the controls of these."""
