"""Requests as they arrive: what can be answered at once is, the rest is left for the training thread."""

from __future__ import annotations

from dataclasses import asdict

from tensonde.errors import TensondeError
from tensonde.protocol.messages import Request
from tensonde.session.serving.answers import Answers
from tensonde.session.serving.desk import Desk
from tensonde.session.serving.progress import Progress
from tensonde.session.session import Session
from tensonde.session.watchlist import Watchlist


class Orders:
    """In the link's thread, at any time. What is to be changed is changed by the training thread."""

    def __init__(
        self, session: Session, desk: Desk, watchlist: Watchlist, progress: Progress, answers: Answers
    ) -> None:
        self._session, self._desk, self._watchlist = session, desk, watchlist
        self._progress, self._answers = progress, answers
        self.terminate = False
        """The training is to end after its step."""

    def receive(self, request: Request) -> None:
        """Never raises."""
        try:
            self._accept(request)
        except TensondeError as problem:
            self._answers.refuse(request, str(problem), status=422)
        except Exception as problem:
            self._answers.failed(request, problem)

    def _accept(self, request: Request) -> None:
        kind, given, give = request.kind, request.arguments, self._answers.give
        if kind in ("where", "pause", "terminate"):
            self._steer(request)
        elif kind == "pause_at":
            self._pause_at(request, int(given["step"]))
        elif kind == "watchpoints":
            give(request, self._watchlist.shown())
        elif kind == "watch":
            action = given.get("action", "report")
            give(request, self._watchlist.add(str(given["sites"]), str(given["condition"]), action))
        elif kind == "rewatch":
            give(request, self._watchlist.change(int(given["id"]), given))
        elif kind == "unwatch":
            self._watchlist.remove(int(given["id"]))
            give(request, {})
        elif kind == "recommended":
            give(request, self._watchlist.recommend())
        elif kind == "breakpoints":
            give(request, [asdict(point) for point in list(self._session.gate.breakpoints.values())])
        elif not self._desk.hand_in(request):
            self._answers.refuse(request, "the training runs; pause it first.")

    def _steer(self, request: Request) -> None:
        stopped = self._desk.stop is not None
        if request.kind == "pause" and not stopped:
            self._session.gate.request_pause()
        elif request.kind == "terminate":
            self.terminate = True
            if stopped:
                self._go_on(request, "quit")
                return
        state, step = "stopped" if stopped else "running", self._session.steps.step
        speed = self._progress.speed or 0.0
        self._answers.give(request, {"accepted": True, "state": state, "step": step, "speed": speed})

    def _pause_at(self, request: Request, step: int) -> None:
        """One step for all ranks. Too late where this one is past it; a rank that had stopped early for it goes on."""
        gate, stop = self._session.gate, self._desk.stop
        if stop is not None and step > stop.moment.step and stop.reason == "pause":
            gate.request_pause_at(step)
            self._go_on(request, "continue")
            return
        gate.request_pause_at(step)  # first, so that a step that begins right now is not missed
        here = self._session.steps.step
        late = stop is None and here >= step
        if late:
            gate.request_pause_at(None)
        state = "stopped" if stop is not None else "running"
        self._answers.give(request, {"accepted": not late, "state": state, "step": here})

    def _go_on(self, request: Request, kind: str) -> None:
        self._desk.put(Request(id=request.id, kind="resume", arguments={"kind": kind}))
