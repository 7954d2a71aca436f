"""Over standard input and output, as editors start an adapter; or at a port, where several may come one after the other."""

from __future__ import annotations

import os
import socket
import sys

from tensonde.dap.session import DebugSession
from tensonde.dap.wire import Wire
from tensonde.errors import UsageError

LOOPBACK = "127.0.0.1"


def serve_stdio() -> None:
    """What anything here prints must not reach the editor: standard output becomes standard error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    DebugSession(Wire(source, sink)).converse()


def serve_port(port: int, *, once: bool = False) -> None:
    """On this machine only: whoever connects may start programs."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
        except (OSError, OverflowError) as problem:
            raise UsageError(
                f"the adapter cannot listen on port {port}: {getattr(problem, 'strerror', None) or problem}."
            ) from None
        listening.listen(1)
        print(
            f"tensonde: the debug adapter listens on {LOOPBACK}:{listening.getsockname()[1]}",
            file=sys.stderr,
            flush=True,
        )
        while True:
            connection, _ = listening.accept()
            with connection:
                DebugSession(Wire(connection.makefile("rb"), connection.makefile("wb"))).converse()
            if once:
                return
