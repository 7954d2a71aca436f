"""The training thread serves the hub: at a stop until somebody says how to go on, or one request between two steps."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from tensonde.errors import TensondeError, UsageError
from tensonde.model.stop import Resume, Stop
from tensonde.protocol.messages import Request
from tensonde.session.inspector import Inspector
from tensonde.session.serving.answers import Answers
from tensonde.session.serving.commands import Commands, Lines
from tensonde.session.serving.desk import Desk
from tensonde.session.serving.questions import Questions
from tensonde.session.watchlist import Watchlist
from tensonde.watch.pattern import Pattern

log = logging.getLogger("tensonde.agent")

PATIENCE = 60.0
"""Seconds that a stopped training waits for a hub that is lost; TENSONDE_HUB_PATIENCE."""
KINDS = {"continue", "step", "next", "nextop", "until", "finish", "quit"}


class Conversation:
    def __init__(
        self, inspector: Inspector, commands: Commands, desk: Desk, watchlist: Watchlist, answers: Answers,
        lost_at: Callable[[], float | None],
    ) -> None:  # fmt: skip
        """`lost_at`: since when there is no hub; None while there is one."""
        self._session = inspector.session
        self._commands, self._desk, self._watchlist, self._answers = commands, desk, watchlist, answers
        self._questions = Questions(inspector, commands, answers)
        self._lost_at = lost_at
        self._asking: Request | None = None
        try:
            self._patience = float(os.environ.get("TENSONDE_HUB_PATIENCE", PATIENCE))
        except ValueError:
            self._patience = PATIENCE

    def hold(self, stop: Stop) -> Resume:
        """Until somebody says how to go on, or the hub is lost for too long."""
        while True:
            request = self._next()
            if request is None:
                log.warning("the hub has been gone for %g s; the training goes on", self._patience)
                return Resume()
            plan = self.serve(request, stop)
            if plan is not None:
                return plan

    def _next(self) -> Request | None:
        """None when the hub is lost for too long."""
        while True:
            request = self._desk.take(0.25)
            if request is not None:
                return request
            lost = self._lost_at()
            if lost is not None and time.monotonic() - lost > self._patience:
                return None

    def serve(self, request: Request, stop: Stop) -> Resume | None:
        """Answers, and says how the training goes on if the request was that. Never raises."""
        try:
            if request.kind == "command":
                return self._command(request, stop)
            if request.kind == "resume":
                plan = self._plan(request.arguments)
                state = {"accepted": True, "state": "running", "step": self._session.steps.step}
                self._answers.give(request, state)
                return plan
            self._questions.answer(request, stop)
        except TensondeError as problem:
            self._answers.refuse(request, str(problem), status=409 if request.kind in ("tensor", "shape") else 422)
        except Exception as problem:
            self._answers.failed(request, problem)
        return None

    def _plan(self, arguments: dict[str, Any]) -> Resume:
        kind = str(arguments.get("kind", "continue"))
        if kind not in KINDS:
            raise UsageError(f"{kind!r} is no way to go on; it may be {', '.join(sorted(KINDS))}.")
        sites = str(arguments.get("sites") or "")
        if kind == "until":
            if not sites:
                raise UsageError("until which site? For example until blocks.3.attn:grad.")
            Pattern.parse(sites)
        self._watchlist.apply()
        return Resume(kind, max(1, int(arguments.get("count") or 1)), sites)  # type: ignore[arg-type]

    def _command(self, request: Request, stop: Stop) -> Resume | None:
        self._asking = request

        def ask(said: Lines, question: str) -> str:
            assert self._asking is not None
            self._answers.give(self._asking, {"output": said, "resumed": False, "prompt": question})
            while True:
                following = self._next()
                if following is None:
                    raise EOFError
                if following.kind == "command":
                    self._asking = following
                    return str(following.arguments.get("line", ""))
                if following.kind == "resume":
                    self._answers.refuse(following, f"a command waits for an answer to {question!r}; give it first.")
                else:
                    self.serve(following, stop)

        said, plan = self._commands.run(str(request.arguments.get("line", "")), stop, ask)
        self._watchlist.take_over()
        self._answers.give(self._asking, {"output": said, "resumed": plan is not None, "prompt": None})
        if plan is not None and plan.kind != "quit":
            self._watchlist.apply()
        return plan
