"""Where the link's thread leaves requests for the training thread: for the stop that it is in, or for the end of the step."""

from __future__ import annotations

import queue
import threading
from collections import deque

from tensonde.model.stop import Stop
from tensonde.protocol.messages import Request


class Desk:
    """`put` and `hand_in` are the link's thread's, the rest is the training thread's; any may read `stop`."""

    def __init__(self) -> None:
        self.stop: Stop | None = None
        """None while the training runs."""
        self._jobs: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._pending: deque[Request] = deque()
        self._lock = threading.Lock()

    def open(self, stop: Stop) -> None:
        with self._lock:
            self.stop = stop

    def close(self) -> list[Request]:
        """What was left unserved."""
        with self._lock:
            self.stop = None
            return [self._jobs.get_nowait() for _ in range(self._jobs.qsize())]

    def put(self, request: Request) -> None:
        self._jobs.put(request)

    def hand_in(self, request: Request, *, between_steps: bool) -> bool:
        """False where it would have to wait for a stop."""
        with self._lock:
            if self.stop is not None:
                self._jobs.put(request)
                return True
            if between_steps:
                self._pending.append(request)
                return True
        return False

    def take(self, timeout: float) -> Request | None:
        try:
            return self._jobs.get(timeout=timeout)
        except queue.Empty:
            return None

    def between_steps(self) -> Request | None:
        return self._pending.popleft() if self._pending else None
