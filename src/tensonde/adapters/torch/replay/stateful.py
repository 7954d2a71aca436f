"""Buffers that a forward both reads and writes: they are copied before each call, so that the call can be made again.

Which they are shows in the first call. Running statistics are not among them: a forward in training mode does not read them.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.replay.call import TapedCall

MOST_BYTES = 1 << 20
"""Larger ones are not copied."""


class Stateful:
    def __init__(self) -> None:
        self._paths: dict[int, list[str]] = {}
        self._watched: list[tuple[nn.Module, str, Tensor, int]] | None = None

    def before(self, entry: TapedCall, module: nn.Module) -> None:
        """Buffers that the forward both reads and writes are copied; that there are any shows in the first call."""
        names, self._watched = self._paths.get(id(module)), None
        if names is None:
            self._watched = [
                (owner, name, buffer, buffer._version)
                for owner in module.modules()
                if not isinstance(owner, nn.modules.batchnorm._BatchNorm)
                for name, buffer in owner.named_buffers(recurse=False)
                if buffer is not None
            ]
            return
        for name in names:
            buffer = module.get_buffer(name)
            entry.buffers = (*entry.buffers, (buffer, buffer.detach().clone()))

    def after(self, module: nn.Module) -> None:
        if self._watched is None:
            return
        watched, self._watched = self._watched, None
        changed = {
            (id(owner), name) for owner, name, buffer, version in watched if _changed(owner, name, buffer, version)
        }
        paths = [
            f"{path}.{name}" if path else name
            for path, owner in module.named_modules()
            for name, buffer in owner.named_buffers(recurse=False)
            if (id(owner), name) in changed and buffer.numel() * buffer.element_size() <= MOST_BYTES
        ]
        self._paths[id(module)] = paths


def _changed(owner: nn.Module, name: str, buffer: Tensor, version: int) -> bool:
    held: Any = getattr(owner, name, None)
    return held is not buffer or buffer._version != version
