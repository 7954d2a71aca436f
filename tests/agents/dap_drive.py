"""An editor that speaks the Debug Adapter Protocol to a real adapter process. All waiting is for messages."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from launch import environment

Json = dict[str, Any]
LONG = 60.0


class Failed(Exception):
    """The adapter's own sentence."""


class Editor:
    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self.timeline: list[Json] = []
        """Everything that came, in its order."""
        self._changed = threading.Condition()
        self._seq = 0
        self._over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            head = self._source.readline()
            if not head:
                break
            length = int(head.partition(b":")[2])
            assert self._source.readline() == b"\r\n"
            message = json.loads(self._source.read(length))
            with self._changed:
                self.timeline.append(message)
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def send(self, command: str, **arguments: Any) -> int:
        self._seq += 1
        content = json.dumps({"seq": self._seq, "type": "request", "command": command, "arguments": arguments}).encode()
        self._sink.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        self._sink.flush()
        return self._seq

    def until(self, fits: Callable[[Json], bool], after: int = 0) -> Json:
        """The first message from place `after` on that fits."""
        until = time.monotonic() + LONG
        with self._changed:
            while True:
                found = next((message for message in self.timeline[after:] if fits(message)), None)
                if found is not None:
                    return found
                left = until - time.monotonic()
                assert left > 0, f"nothing that fits came: {self.timeline[after:]}"
                assert not self._over, f"the adapter has gone: {self.timeline[after:]}"
                self._changed.wait(left)

    def ask(self, command: str, **arguments: Any) -> Json:
        """The body of the response. Raises Failed."""
        number = self.send(command, **arguments)
        answer = self.until(lambda message: message.get("request_seq") == number)
        assert answer["command"] == command
        if not answer["success"]:
            raise Failed(answer["message"])
        body: Json = answer.get("body") or {}
        return body

    def event(self, name: str, after: int = 0, **shape: Any) -> Json:
        """The body of the first such event whose body has these parts."""
        found = self.until(
            lambda m: m.get("event") == name and all(m["body"].get(key) == value for key, value in shape.items()), after
        )
        body: Json = found.get("body") or {}
        return body

    @property
    def now(self) -> int:
        return len(self.timeline)

    def goes(self, command: str, **shape: Any) -> Json:
        """Lets thread 1 go on, and gives the stop that follows."""
        here = self.now
        self.ask(command, threadId=1)
        return self.event("stopped", here, **shape)


@contextmanager
def over_stdio(folder: Path) -> Iterator[Editor]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tensonde", "dap"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment({"XDG_RUNTIME_DIR": str(folder)}),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Editor(process.stdout, process.stdin)
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        finally:
            process.kill()


@contextmanager
def over_tcp(folder: Path) -> Iterator[Editor]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tensonde", "dap", "--port", "0", "--once"], cwd=folder, stderr=subprocess.PIPE, text=True,
        env=environment({"XDG_RUNTIME_DIR": str(folder)}),
    )  # fmt: skip
    assert process.stderr is not None
    port = int(process.stderr.readline().rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.settimeout(None)
            yield Editor(connection.makefile("rb"), connection.makefile("wb"))
            connection.shutdown(socket.SHUT_WR)
        assert process.wait(30) == 0
    finally:
        process.kill()
