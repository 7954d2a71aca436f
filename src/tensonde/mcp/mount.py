"""The server at `/api/mcp` of the hub, behind its token. It is made when somebody first calls: the SDK takes a second to import."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from tensonde.protocol.address import Address

PATH = "/api/mcp"


class Mount:
    """ASGI. The hub's own guards (token, Host, Origin, size) stand before it."""

    def __init__(self, folder: Path, *, allow_run: bool) -> None:
        self._folder, self._allow_run = folder, allow_run
        self.address: Address | None = None
        """Of the hub, when it is known."""
        self._service: Any = None
        self._manager: Any = None
        self._lock = asyncio.Lock()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with self._lock:
            if self._manager is None:
                await self._start()
        await self._manager.handle_request(scope, receive, send)

    async def _start(self) -> None:
        self._service, manager = await asyncio.to_thread(self._made)
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._run(manager, ready))
        await ready.wait()
        self._manager = manager

    def _made(self) -> tuple[Any, Any]:
        from mcp.server.transport_security import TransportSecuritySettings

        from tensonde.mcp.server import Service

        service = Service(self._folder, allow_run=self._allow_run, hub=self.address)
        open_to_hub = TransportSecuritySettings(
            enable_dns_rebinding_protection=False
        )  # the hub has looked at Host and Origin
        service.server.streamable_http_app(
            streamable_http_path=PATH, json_response=True, transport_security=open_to_hub
        )
        return service, service.server.session_manager

    async def _run(self, manager: Any, ready: asyncio.Event) -> None:
        """The manager's tasks live in one task of ours."""
        async with manager.run():
            ready.set()
            await self._ended.wait()

    def close(self) -> None:
        """Ends what was started over it; any thread."""
        with self._closing:
            service, self._service = self._service, None
        if service is not None:
            service.close()
