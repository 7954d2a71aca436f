"""The buffers that DistributedDataParallel sends from rank 0 to the others before a forward: a wait of its own, in C++."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from tensonde.adapters.torch import seams

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher


def observe_buffers(current: Callable[[], Watcher | None]) -> None:
    """Once in a process."""
    owner = torch.nn.parallel.DistributedDataParallel
    original = getattr(owner, "_sync_buffers", None)
    if original is None or not torch.distributed.is_available():
        return

    @functools.wraps(original)
    def synchronise(self: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is None or watcher.state.thread != get_ident():
            return original(self)
        guard, replicas = watcher.session.guard, watcher.facts.replicas
        index = None
        try:
            index = replicas.buffers_begin()
        except Exception as problem:
            guard.contain("noting a collective", problem)
        result = original(self)
        try:
            if index is not None:
                replicas.ended(index)
        except Exception as problem:
            guard.contain("noting a collective", problem)
        return result

    seams.put(owner, "_sync_buffers", synchronise, "know when a rank waits for the buffers of rank 0")
