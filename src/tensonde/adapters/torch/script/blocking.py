"""Synchronous mode at run time: after every op the accelerator is waited for, so that its error surfaces where it was
caused.

A dispatch mode sees the ops of the thread that it is pushed in, and those of the backward pass, whose threads take over the modes of the one
that began it. On a CPU ops are synchronous anyway. Run on the stand-in accelerator of the tests; it has not been run on a GPU.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tensonde.adapters.torch.seams.function_mode import unseen

log = logging.getLogger("tensonde.session")

VARIABLES = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING")
_mode: Blocking | None = None
_wanted = _told = False


class Blocking(TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        device = _device((out, args))
        if device is not None:
            torch.accelerator.synchronize(device)
        return out


def _device(value: Any) -> torch.device | None:
    """Of the first tensor that is on an accelerator."""
    if isinstance(value, Tensor):
        return value.device if value.device.type not in ("cpu", "meta") else None
    if isinstance(value, tuple | list):
        for item in value:
            found = _device(item)
            if found is not None:
                return found
    return None


def blocking() -> bool:
    """Whether every op is waited for."""
    return _mode is not None


def launch_blocking() -> None:
    """From now on every op is waited for."""
    global _wanted
    for name in VARIABLES:  # heeded by drivers that have not been started yet, and by child processes
        os.environ.setdefault(name, "1")
    _wanted = True
    if not _begin() and _told:
        _tell()


def training_begins() -> None:
    """A device may have come with an import of the script's since it was asked for."""
    global _told
    _told = True
    if _wanted and not _begin():
        _tell()


def _begin() -> bool:
    global _mode
    if _mode is None and torch.accelerator.is_available():
        _mode = Blocking()
        with unseen():  # so it comes to lie below the user's own modes, and is never left in their place
            _mode.__enter__()
    return _mode is not None


def _tell() -> None:
    log.warning("launch_blocking: there is no accelerator here, and on a CPU every op is synchronous already")
