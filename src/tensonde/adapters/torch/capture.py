"""Whether a device takes down what is launched, instead of doing it: `torch.cuda.graph`, and what `mode="reduce-overhead"` compiles to.

While it does, nothing may wait for the device or read a value of it, and what is launched by us would be launched again at every replay of the graph.
"""

from __future__ import annotations

from typing import Any

import torch

_module: Any = None
_known = False


def device_module() -> Any | None:
    """`torch.cuda` and the like, once this process has used its device. Before that a question could start the driver, or fail: a build for
    CUDA has the module on machines without a GPU as well."""
    global _module, _known
    if not _known:
        kind = torch.accelerator.current_accelerator()
        _module, _known = torch.get_device_module(kind.type) if kind is not None else None, True
    if _module is None:
        return None
    used = getattr(_module, "is_initialized", None)
    return _module if used is None or used() else None


def capturing() -> bool:
    """Costs a few hundred nanoseconds where there is a device."""
    ask = getattr(device_module(), "is_current_stream_capturing", None)
    return ask is not None and bool(ask())
