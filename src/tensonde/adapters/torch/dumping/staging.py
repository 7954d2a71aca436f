"""From a tensor to its bytes in the dump's pool.

CPU tensors are copied at once. Tensors of a device are copied to pinned memory without waiting for the device, and handed
on, in their order, when their copies have arrived: at the latest at the end of the step. UNTESTED ON A GPU.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.tensors import array_of
from tensonde.store.dump.writer import DumpWriter, Seen

MOST_BYTES = 256 << 20
"""Pinned memory that may wait for the device."""


class Staging:
    """One thread at a time: the training's, or one of autograd's while it waits."""

    def __init__(self, writer: DumpWriter, *, asynchronous: bool) -> None:
        self.writer = writer
        self.asynchronous = asynchronous
        self._waiting: deque[tuple[Seen, Tensor, Any]] = deque()
        self._bytes = 0

    def put(self, seen: Seen, tensor: Tensor) -> None:
        """`tensor` is detached and strided."""
        if tensor.device.type == "cpu":
            self.drain()
            self.writer.put(seen, flat_bytes(tensor))
        elif tensor.device.type == "cuda" and self.asynchronous:
            self._stage(seen, tensor)
        else:
            self.drain()
            self.writer.put(seen, flat_bytes(tensor.cpu()))

    def _stage(self, seen: Seen, tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        while self._waiting and self._bytes + size > MOST_BYTES:
            self._oldest()
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(tensor.device))
        self._waiting.append((seen, pinned, event))
        self._bytes += size
        while self._waiting and self._waiting[0][2].query():
            self._oldest()

    def _oldest(self) -> None:
        seen, pinned, event = self._waiting.popleft()
        event.synchronize()
        self._bytes -= pinned.numel() * pinned.element_size()
        self.writer.put(seen, flat_bytes(pinned))

    def drain(self) -> None:
        """Hands on all that waits."""
        while self._waiting:
            self._oldest()


def flat_bytes(tensor: Tensor) -> Any:
    """The bytes of a CPU tensor in C order, without a copy where it is contiguous."""
    return array_of(tensor.contiguous().reshape(-1).view(torch.uint8))
