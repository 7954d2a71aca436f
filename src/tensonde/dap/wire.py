"""Messages of the Debug Adapter Protocol on two streams: a head with the length, and JSON."""

from __future__ import annotations

import json
import threading
from typing import IO, Any

Json = dict[str, Any]
LARGEST = 16 << 20


class Broken(Exception):
    """The other side does not speak the protocol; the conversation is over."""


class Wire:
    """`receive` belongs to one thread; any may send."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self._lock = threading.Lock()
        self._seq = 0

    def receive(self) -> Json | None:
        """None at the end. Raises Broken."""
        length = None
        while True:
            line = self._source.readline(1024)
            if not line:
                return None
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.decode("latin-1").partition(":")
            if name.strip().lower() == "content-length":
                length = int(value) if value.strip().isdecimal() else None
        if length is None or length > LARGEST:
            raise Broken("a message without a Content-Length of at most 16 MiB")
        content = self._source.read(length)
        if len(content) < length:
            return None
        try:
            message = json.loads(content)
        except ValueError as problem:
            raise Broken(f"a message that is no JSON: {problem}") from None
        if not isinstance(message, dict):
            raise Broken("a message that is no object")
        return message

    def send(self, message: Json) -> None:
        """Does nothing where nobody listens any more."""
        with self._lock:
            self._seq += 1
            content = json.dumps({"seq": self._seq, **message}).encode()
            try:
                self._sink.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
                self._sink.flush()
            except (OSError, ValueError):
                pass

    def event(self, name: str, **body: Any) -> None:
        self.send({"type": "event", "event": name, "body": body})
