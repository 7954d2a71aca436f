"""Answers to the hub's requests: a result, or one sentence and what HTTP calls that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensonde.model.stop import Resume
from tensonde.protocol.messages import Reply, Request
from tensonde.protocol.outbox import Outbox
from tensonde.store.files import plain


@dataclass(frozen=True, slots=True)
class Answer:
    """`plan`: how the training goes on, if it does. `to`: whom it is given, if not the request that was served."""

    result: Any
    content: bytes = b""
    plan: Resume | None = None
    to: Request | None = None


class Answers:
    """Any thread."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def give(self, request: Request, result: Any, content: bytes = b"") -> None:
        self._outbox.reply(Reply(id=request.id, result=plain(result), content=content))

    def refuse(self, request: Request, sentence: str, *, status: int = 409) -> None:
        self._outbox.reply(Reply(id=request.id, error=sentence, status=status))

    def failed(self, request: Request, problem: Exception) -> None:
        sentence = f"Tensonde failed here ({type(problem).__name__}: {problem}); the training is untouched."
        self.refuse(request, sentence, status=500)
