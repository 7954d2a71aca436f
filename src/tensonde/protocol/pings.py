"""A connection whose pings carry bytes of the system's: websockets takes them from Python's global generator, which is the training's."""

from __future__ import annotations

import os
from typing import Any

from websockets.sync.client import ClientConnection


class Connection(ClientConnection):
    def ping(self, data: Any = None, *more: Any, **options: Any) -> Any:
        return super().ping(os.urandom(4) if data is None else data, *more, **options)
