"""Collectives of `torch.distributed`, as the program and the libraries in it call them.

What C++ does on its own, such as the gradient buckets of DistributedDataParallel, passes none of these functions.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.seams.function_mode import unseen

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

NAMES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv", "barrier",
    "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list", "batch_isend_irecv",
)  # fmt: skip


def observe_collectives(current: Callable[[], Watcher | None]) -> None:
    """Once in a process."""
    if not torch.distributed.is_available():
        return
    module = torch.distributed.distributed_c10d
    for name in NAMES:
        original = getattr(module, name, None)
        if original is None:
            continue
        wrapper = _observing(name, original, current)
        for owner in (module, torch.distributed):
            if getattr(owner, name, None) is original:
                seams.put(owner, name, wrapper, "know which collective a rank is in")


def _observing(name: str, original: Callable[..., Any], current: Callable[[], Watcher | None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is None or watcher.state.thread != get_ident() or watcher.facts.collectives.inside:
            return original(*args, **kwargs)
        collectives = watcher.facts.collectives
        collectives.inside = True
        call = None
        try:
            try:
                with unseen():
                    call = collectives.begins(name, args, kwargs, sys._getframe(1))
            except Exception as problem:
                watcher.session.guard.contain("noting a collective", problem)
            result = original(*args, **kwargs)
        finally:
            collectives.inside = False
        if call is not None:
            try:
                with unseen():
                    collectives.ended(call)
            except Exception as problem:
                watcher.session.guard.contain("noting a collective", problem)
        return result

    return observed
