"""Runs the hub until it is told to stop."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import uvicorn

from tensonde.errors import UsageError
from tensonde.protocol.address import Address
from tensonde.protocol.messages import LARGEST_FRAME
from tensonde.protocol.trust import fingerprint_of_file
from tensonde.server.app import create_app, guarded
from tensonde.server.hub import Hub
from tensonde.server.library import Library
from tensonde.server.patience import Patient
from tensonde.server.safety import own_names

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def new_token() -> str:
    return secrets.token_urlsafe(24)


def bind(host: str, port: int) -> socket.socket:
    """Raises UsageError with what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as problem:
        listening.close()
        reason = getattr(problem, "strerror", None) or problem
        raise UsageError(
            f"the hub cannot listen on {host}:{port}: {reason}; choose another with --host and --port, or --port 0 for any."
        ) from None
    listening.listen(128)
    return listening


def serve(
    given: Iterable[str | Path] = (),
    *,
    host: str = LOOPBACK,
    port: int = 0,
    token: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    pinned: bool = False,
    ready: Callable[[Address], None] = lambda address: None,
    prepare: Callable[[Any], None] = lambda server: None,
    mounts: Mapping[str, Any] | None = None,
) -> None:
    """Blocks until SIGINT or SIGTERM. `ready` is told the address when connections are accepted.

    `pinned`: the certificate is trusted by its fingerprint, which goes into the address. `mounts`: other ASGI applications by their path, behind the hub's guards.
    """
    secret = token or new_token()
    hub = Hub(Library(given))
    listening = bind(host, port)
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    address = Address(
        f"{'https' if certificate else 'http'}://{shown}:{listening.getsockname()[1]}",
        secret,
        fingerprint_of_file(certificate) if pinned and certificate else "",
    )
    logging.getLogger("websockets").setLevel(logging.ERROR)
    config = uvicorn.Config(
        guarded(create_app(hub, mounts or {}), token=secret, names=own_names(host)),
        log_level="error", access_log=False, ws_max_size=LARGEST_FRAME, ws="websockets-sansio", ws_per_message_deflate=False, lifespan="off", server_header=False, http=Patient,
        ssl_certfile=certificate, ssl_keyfile=key, timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = _Server(config, lambda: ready(address))
    prepare(server)
    server.run([listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()
