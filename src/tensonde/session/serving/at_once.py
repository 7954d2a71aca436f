"""Requests that are answered as they arrive, in the link's thread. They change nothing that the training thread uses, but ask it to."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

from tensonde.model.stop import Reason
from tensonde.protocol.messages import Request
from tensonde.session.serving.answers import Answer

if TYPE_CHECKING:
    from tensonde.session.serving.service import Service

log = logging.getLogger("tensonde.agent")

ASKED = ("pause", "step")
"""Reasons of stops that were asked for at a step, not at a place."""


def where(service: Service, request: Request) -> Answer:
    return _state(service, stopped=service.desk.stop is not None)


def pause(service: Service, request: Request) -> Answer:
    stopped = service.desk.stop is not None
    if not stopped:
        service.session.gate.request_pause()
    return _state(service, stopped=stopped)


def pause_at(service: Service, request: Request) -> Answer | None:
    """One step for all ranks. Too late where this one is past it; a rank that had stopped early for it goes on."""
    step = int(request.arguments["step"])
    reason: Reason = "step" if request.arguments.get("reason") == "step" else "pause"
    gate, stop = service.session.gate, service.desk.stop
    if stop is not None and step > stop.moment.step and (stop.reason in ASKED or request.arguments.get("go")):
        gate.request_pause_at(step, reason)
        _go_on(service, request, "continue")
        return None
    gate.request_pause_at(step, reason)  # first, so that a step that begins right now is not missed
    here = service.session.steps.step
    late = stop is None and here >= step
    if late:
        gate.request_pause_at(None)
    return Answer({"accepted": not late, "state": "stopped" if stop is not None else "running", "step": here})


def hold(service: Service, request: Request) -> Answer:
    """Another rank has stopped."""
    stopped = service.desk.stop is not None
    if not stopped:
        service.session.gate.request_hold(service.session.steps.step)
    return _state(service, stopped=stopped)


def release(service: Service, request: Request) -> Answer | None:
    """No stop is wanted any more, neither the one that it is in nor one that it was asked for."""
    why = str(request.arguments.get("why") or "")
    if why:
        log.log(service.level, "the training goes on: %s", why)
    service.session.gate.request_pause_at(None)
    if service.desk.stop is not None:
        _go_on(service, request, "continue")
        return None
    return _state(service, stopped=False)


def terminate(service: Service, request: Request) -> Answer | None:
    stopped = service.desk.stop is not None
    service.terminate = True
    if stopped:
        _go_on(service, request, "quit")
        return None
    return _state(service, stopped=stopped)


def _state(service: Service, *, stopped: bool) -> Answer:
    state, step = "stopped" if stopped else "running", service.session.steps.step
    return Answer({"accepted": True, "state": state, "step": step, "speed": service.progress.speed or 0.0})


def _go_on(service: Service, request: Request, kind: str) -> None:
    """The training thread resumes, and answers the request."""
    service.desk.put(Request(id=request.id, kind="resume", arguments={"kind": kind}))


def watchpoints(service: Service, request: Request) -> Answer:
    return Answer(service.watchlist.shown())


def watch(service: Service, request: Request) -> Answer:
    given = request.arguments
    action = given.get("action", "report")
    return Answer(service.watchlist.add(str(given["sites"]), str(given["condition"]), action))


def rewatch(service: Service, request: Request) -> Answer:
    return Answer(service.watchlist.change(int(request.arguments["id"]), request.arguments))


def unwatch(service: Service, request: Request) -> Answer:
    service.watchlist.remove(int(request.arguments["id"]))
    return Answer({})


def recommended(service: Service, request: Request) -> Answer:
    return Answer(service.watchlist.recommend())


def breakpoints(service: Service, request: Request) -> Answer:
    return Answer([asdict(point) for point in list(service.session.gate.breakpoints.values())])
