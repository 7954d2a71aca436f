"""Whether a device takes down what is launched, instead of doing it: `torch.cuda.graph`, and what `mode="reduce-overhead"` compiles to.

While it does, nothing may wait for the device or read a value of it, and what is launched by us would be launched again at every replay of the graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


def _asked() -> Callable[[], bool]:
    """How the device of this process is asked. It costs a few hundred nanoseconds, and nothing where there is no such device."""
    kind = torch.accelerator.current_accelerator()
    module = torch.get_device_module(kind.type) if kind is not None else None
    ask = getattr(module, "is_current_stream_capturing", None)
    return ask if ask is not None else lambda: False


_ask: Callable[[], bool] | None = None


def capturing() -> bool:
    global _ask
    if _ask is None:
        _ask = _asked()
    return _ask()
