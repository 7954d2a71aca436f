"""The processes below one."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def below(pid: int) -> list[int]:
    """All descendants of a process, as far as the system tells (Linux)."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found[1:]


def kill_tree(pid: int) -> None:
    """Kills a process and all that it has started."""
    for number in (*below(pid), pid):
        try:
            os.kill(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
