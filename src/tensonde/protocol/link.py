"""An agent's connection to the hub: made anew whenever it breaks, never in the way of the training.

Two threads: one connects and reads, the other sends what the outbox holds. Only this file imports websockets in a training.
Python's global random numbers belong to the training: nothing here draws from them, and websockets' pings are made not to.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from tensonde.protocol.address import Address
from tensonde.protocol.codec import BadFrame, decode_from_hub, encode
from tensonde.protocol.messages import LARGEST_FRAME, PROTOCOL, Ack, FromHub, Hello, Welcome
from tensonde.protocol.outbox import Outbox

log = logging.getLogger("tensonde.agent")

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
POLL_SECONDS = 0.25
OPEN_SECONDS = 5.0
_chance = random.Random()


class Link:
    """`receive` is called in the reading thread for what the hub says; `poll` in the sending one, four times a second.

    Nothing here raises into the training. After a fork the child has no link.
    """

    def __init__(
        self, address: Address, outbox: Outbox, hello: Callable[[], Hello], receive: Callable[[FromHub], None],
        poll: Callable[[], None] = lambda: None, *, quiet: bool = False,
    ) -> None:  # fmt: skip
        """`quiet`: somebody else tells when the hub is lost."""
        self.address, self.outbox = address, outbox
        self._level = logging.INFO if quiet else logging.WARNING
        self._hello, self._receive, self._poll = hello, receive, poll
        self._pid = os.getpid()
        self._closing = threading.Event()
        self._connected = threading.Event()
        self._tried = threading.Event()
        self._connection: Any = None
        self._line: tuple[Any, int] | None = None
        """The connection that the hub has welcomed, and the outbox's turn for it."""
        self._told = False
        self.lost_at: float | None = time.monotonic()
        """Since when there is no hub; None while there is one."""
        self._reader = threading.Thread(target=self._run, name="tensonde-agent", daemon=True)
        self._sender = threading.Thread(target=self._send, name="tensonde-agent-send", daemon=True)

    def start(self) -> None:
        os.register_at_fork(after_in_child=self._forked)
        self._reader.start()
        self._sender.start()

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def tried(self, timeout: float) -> bool:
        """Waits for the first try to connect, good or bad; True if there is a hub."""
        self._tried.wait(timeout)
        return self.connected

    def wait(self, timeout: float) -> bool:
        """Until there is a hub; False if there is none in time."""
        return self._connected.wait(timeout)

    def close(self) -> None:
        """Within a second."""
        if os.getpid() != self._pid:
            return
        self._closing.set()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()
        self.outbox.disconnected()
        self._reader.join(0.5)

    def _forked(self) -> None:
        """The connection is the parent's; this copy of it only keeps it open when the parent has died."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                os.close(connection.socket.detach())

    # -- reading ---------------------------------------------------------------------------------

    def _run(self) -> None:
        wait = FIRST_WAIT
        while not self._closing.is_set():
            try:
                if self._talk():
                    wait = FIRST_WAIT
            except Exception as problem:
                again = self._tell(problem)
                self._tried.set()
                if not again:
                    return
            self._connected.clear()
            if self.lost_at is None:
                self.lost_at = time.monotonic()
            self.outbox.disconnected()
            self._closing.wait(wait * (0.5 + _chance.random() / 2))
            wait = min(2 * wait, LONGEST_WAIT)

    def _talk(self) -> bool:
        """One connection, to its end. True if it was a good one."""
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        from tensonde.protocol.pings import Connection
        from tensonde.protocol.trust import context_for

        headers = {"Authorization": f"Bearer {self.address.token}"}
        opening = connect(
            f"{self.address.socket}/api/agent", additional_headers=headers, max_size=LARGEST_FRAME, open_timeout=OPEN_SECONDS,
            close_timeout=0.3, compression=None, proxy=None, create_connection=Connection, ssl=context_for(self.address),
        )  # fmt: skip
        try:
            with opening as connection:
                self._connection = connection
                connection.send(encode(self._hello()))
                welcome = decode_from_hub(connection.recv(timeout=OPEN_SECONDS))
                if not isinstance(welcome, Welcome) or welcome.protocol != PROTOCOL:
                    raise BadFrame("the hub speaks another protocol; use the same version of Tensonde on both sides.")
                self._told = False
                self._line = connection, self.outbox.connected(welcome.ack)
                self.lost_at = None
                self._connected.set()
                self._receive(welcome)
                self._tried.set()
                for frame in connection:
                    message = decode_from_hub(frame)
                    if isinstance(message, Ack):
                        self.outbox.acknowledge(message.seq)
                    else:
                        self._receive(message)
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code == 1008:
                raise BadFrame(f"the hub refused: {closed.rcvd.reason}") from None
        finally:
            self._connection = self._line = None
        return True

    def _tell(self, problem: Exception) -> bool:
        """Says once what is wrong. False where trying again is of no use."""
        status = getattr(getattr(problem, "response", None), "status_code", None)
        if status in (401, 403):
            log.log(self._level, "the hub at %s refused this training (%s); it goes on without. Give the hub's URL with its token in TENSONDE_HUB", self.address.url, "wrong or no token" if status == 401 else "by its Host or Origin rule")  # fmt: skip
            return False
        if not self._told:
            self._told = True
            log.log(
                self._level,
                "no hub answers at %s (%s); the training goes on, and joins when there is one",
                self.address.url,
                problem,
            )
        return True

    # -- sending ---------------------------------------------------------------------------------

    def _send(self) -> None:
        polled = 0.0
        while not self._closing.is_set():
            if not self._connected.wait(1.0):
                continue
            now = time.monotonic()
            if now - polled >= POLL_SECONDS:
                polled = now
                self._poll()
            line = self._line
            messages = self.outbox.take(POLL_SECONDS, line[1]) if line is not None else []
            if line is None or not messages:
                if line is None or not self._connected.is_set():
                    time.sleep(0.01)
                continue
            try:
                for message in messages:
                    line[0].send(encode(message))
            except Exception as problem:  # the reader notices, too, and connects again: what must arrive is sent then
                log.debug("sending to the hub failed: %s", problem)
                time.sleep(0.01)
