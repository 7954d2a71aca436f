"""Synchronous mode at run time: after every op the accelerator is waited for, so that its error surfaces where it was
caused.

A dispatch mode sees the ops of the thread that it is pushed in; the backward pass of an accelerator runs in a thread
of its own, which inherits the mode where torch passes it on and is otherwise synchronised at the end of the pass. On
a CPU ops are synchronous anyway. Written against torch's documented interfaces; it has not been run on an
accelerator.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensonde.adapters.torch.seams.function_mode import unseen

log = logging.getLogger("tensonde.session")

VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING")
_mode: Blocking | None = None


class Blocking(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__()
        self.wait = wait

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.wait()
        return out


def launch_blocking() -> bool:
    """From now on every op is waited for. False where there is nothing to wait for."""
    global _mode
    for name in VARIABLES:  # heeded by drivers that have not been started yet, and by child processes
        os.environ.setdefault(name, "1")
    if not torch.accelerator.is_available():
        log.warning("launch_blocking: there is no accelerator here, and on a CPU every op is synchronous already")
        return False
    if _mode is None:
        _mode = Blocking(torch.accelerator.synchronize)
        with unseen():  # so it comes to lie below the user's own modes, and is never left in their place
            _mode.__enter__()
    return True
