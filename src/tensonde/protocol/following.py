"""Looking on at trainings over a hub, in a thread: as long as somebody does, trainings stop for hits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tensonde.protocol.client import Client, HubError

Message = dict[str, Any]
POLL_SECONDS = 0.25


class Follower:
    """`tell` is called with each message in the follower's own thread, and with `{"type": "gone"}` when the hub is."""

    def __init__(self, client: Client, tell: Callable[[Message], None]) -> None:
        self._client, self._tell = client, tell
        self._wanted: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="tensonde-follower")
        self._thread.start()

    def follow(self, run: str, rank: str) -> None:
        """Any thread. The first message about it says how it is now."""
        with self._lock:
            self._wanted.add((run, rank))

    def close(self) -> None:
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _follow(self) -> None:
        asked: set[tuple[str, str]] = set()
        try:
            with self._client.live() as live:
                while not self._ended.is_set():
                    with self._lock:
                        new = self._wanted - asked
                    for run, rank in sorted(new):
                        live.subscribe(run, rank)
                    asked |= new
                    try:
                        message = live.receive(POLL_SECONDS)
                    except TimeoutError:
                        continue
                    self._tell(message)
        except (HubError, OSError):
            if not self._ended.is_set():
                self._tell({"type": "gone"})
