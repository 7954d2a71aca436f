"""Requests of the hub, from their arrival to their answer: at once, between two steps, or at a stop (`requests.REQUESTS`)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from tensonde.errors import TensondeError
from tensonde.model.stop import Resume
from tensonde.protocol.messages import Request
from tensonde.session.inspector import Inspector
from tensonde.session.serving.answers import Answers
from tensonde.session.serving.commands import Commands
from tensonde.session.serving.desk import Desk
from tensonde.session.serving.progress import Progress
from tensonde.session.serving.requests import REQUESTS, Where
from tensonde.session.watchlist import Watchlist
from tensonde.store.whereabouts import HELD

log = logging.getLogger("tensonde.agent")

PATIENCE = 60.0
"""Seconds that a stopped training waits for a hub that is lost; TENSONDE_HUB_PATIENCE."""


class Service:
    """`receive` is the link's thread's, `hold`, `next` and `serve` are the training thread's. None of them raises.

    The attributes are what the handlers of requests use.
    """

    def __init__(
        self, inspector: Inspector, commands: Commands, progress: Progress, answers: Answers,
        lost_at: Callable[[], float | None],
    ) -> None:  # fmt: skip
        """`lost_at`: since when there is no hub; None while there is one."""
        self.inspector, self.session, self.commands = inspector, inspector.session, commands
        self.progress, self.answers = progress, answers
        self.watchlist = Watchlist(self.session)
        self.desk = Desk()
        self.terminate = False
        """The training is to end after its step."""
        self.level = logging.WARNING
        """Of what is said to the user."""
        self._lost_at = lost_at
        try:
            self._patience = float(os.environ.get("TENSONDE_HUB_PATIENCE", PATIENCE))
        except ValueError:
            self._patience = PATIENCE

    def receive(self, request: Request) -> None:
        """Answers what can be answered at once, and leaves the rest for the training thread."""
        row = REQUESTS.get(request.kind)
        if row is None:
            sentence = f"{request.kind!r} is not known here; use the same version of Tensonde on both sides."
            self.answers.refuse(request, sentence, status=422)
        elif row.where is Where.AT_ONCE:
            self.serve(request)
        elif not self.desk.hand_in(request, between_steps=row.where is Where.BETWEEN_STEPS):
            self.answers.refuse(request, "the training runs; pause it first.")

    def serve(self, request: Request) -> Resume | None:
        """Answers, and says how the training goes on if the request was that."""
        row = REQUESTS[request.kind]
        try:
            answer = row.handler(self, request)
            if answer is not None:
                self.answers.give(answer.to or request, answer.result, answer.content)
                return answer.plan
        except TensondeError as problem:
            self.answers.refuse(request, str(problem), status=row.status)
        except Exception as problem:
            self.answers.failed(request, problem)
        return None

    def hold(self) -> Resume:
        """Serves the hub until somebody says how to go on, or the hub is lost for too long."""
        while True:
            request = self.next()
            if request is None:
                log.log(self.level, "the hub has been gone for %g s; the training goes on", self.patience)
                return Resume()
            plan = self.serve(request)
            if plan is not None:
                return plan

    def next(self) -> Request | None:
        """None when the hub is lost for too long."""
        while True:
            request = self.desk.take(0.25)
            if request is not None:
                return request
            self._note_hold()
            lost = self._lost_at()
            if lost is not None and time.monotonic() - lost > self.patience:
                return None

    def _note_hold(self) -> None:
        """For those who look for ranks that wait in vain: this one does not stand still by itself."""
        at = self.desk.stop.source if self.desk.stop is not None else None
        self.session.whereabouts.moves += 1
        self.session.whereabouts.still(time.time(), HELD, at.file if at else "", at.line if at else 0)

    @property
    def patience(self) -> float:
        """Other ranks may wait for this one in a collective, which their back end gives up after a time."""
        together = self.inspector.together()
        if together is None or together.timeout is None:
            return self._patience
        return min(self._patience, together.timeout / 2)
