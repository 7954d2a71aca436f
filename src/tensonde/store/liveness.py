"""Whether the process that writes a recording is still there.

A process id alone can be reused, and means nothing on another machine; with the boot and the time the process
started it names one process for ever.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """When the process started, in the kernel's ticks; "" where that is unknown. Raises
    ProcessLookupError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        os.kill(pid, 0)
        return ""
    state, *rest = stat.rpartition(b")")[2].split()
    if state in (b"Z", b"X"):  # killed, and not yet waited for by its parent
        raise ProcessLookupError(f"process {pid} has ended")
    return rest[18].decode()


def machine() -> str:
    """The same for all processes of this machine, until it is started again."""
    return _boot()


def identity() -> dict[str, Any]:
    """What to store so that `alive` can answer later."""
    pid = os.getpid()
    return {"pid": pid, "boot": _boot(), "started": _started(pid)}


def alive(process: Mapping[str, Any]) -> bool:
    """Whether the process of that `identity` still runs on this machine. Never raises."""
    try:
        pid = int(process["pid"])
        return bool(process["boot"] == _boot() and process["started"] == _started(pid))
    except PermissionError:
        return True
    except (OSError, KeyError, TypeError, ValueError, IndexError):
        return False
