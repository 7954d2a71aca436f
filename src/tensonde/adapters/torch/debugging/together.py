"""The process groups of this process, and after how long their back ends give a collective up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from tensonde.session.inspector import Together

_known: tuple[tuple[int, int], Together | None] = ((-1, -1), None)


def process_groups() -> Together | None:
    """The world of this process; the timeout is the shortest of its groups. None where it computes alone. Any thread."""
    global _known
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        there = distributed.distributed_c10d._world
        made = (there.group_count, len(there.pg_map))
        if made != _known[0]:  # groups are looked at once, so that none is destroyed by the thread that looks
            _known = (made, _look(list(there.pg_map)))
    except (AttributeError, RuntimeError, ValueError):
        return None  # destroyed in this moment
    return _known[1]


def _look(groups: list[Any]) -> Together | None:
    world = torch.distributed.get_world_size()
    if world < 2:
        return None
    found = [seconds for group in groups for seconds in _timeouts(group)]
    return Together(world, str(torch.distributed.get_backend()), min(found, default=None))


def _timeouts(group: Any) -> list[float]:
    """Of each device's back end. A back end that keeps its options to itself says nothing."""
    found = []
    try:
        if group.size() < 2:
            return []
        devices = list(group._device_types)
    except (AttributeError, RuntimeError):
        return []
    for device in devices:
        try:
            timeout = group._get_backend(device).options._timeout
        except (AttributeError, RuntimeError, ValueError):
            continue
        if isinstance(timeout, timedelta) and timeout.total_seconds() > 0:
            found.append(timeout.total_seconds())
    return found
