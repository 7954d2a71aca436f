"""How long the hub waits for somebody who has connected to say what is wanted.

uvicorn waits for ever for the rest of a request's head, so half-open connections would add up until no file can be opened any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 20.0
"""For the head of a request, from the connection or from its first byte."""
BODY_SECONDS = 60.0
"""For each piece of a body."""


class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes a connection on which nothing is being answered, and no whole head of a request comes in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._idle():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        """Between requests. After an upgrade the connection is another protocol's."""
        return self.transport.get_protocol() is self and (self.cycle is None or self.cycle.response_complete)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._late, self.cycle)

    def _late(self, before: Any) -> None:
        self._timer = None
        if self.transport.is_closing() or not self._idle():
            return
        if self.cycle is before:
            self.transport.close()
        else:  # a request was answered meanwhile
            self._wait()
