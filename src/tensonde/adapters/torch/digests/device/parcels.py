"""What comes from a device to the host: one copy at the end of a step, into pinned memory where there is such, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from tensonde.adapters.torch.tensors import array_of


class Parcel:
    """Under way from when it is made. The tensors are of one dtype and of one device, whose current stream has made them."""

    def __init__(self, tensors: Sequence[Tensor], room: Room) -> None:
        self._sizes = [tensor.numel() for tensor in tensors]
        self._room = room
        whole = tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
        self._host = room.take(whole.numel(), whole.dtype)
        self._host[: whole.numel()].copy_(whole, non_blocking=True)
        self._event = torch.Event(device=whole.device)
        self._event.record(torch.accelerator.current_stream(whole.device))  # which need not be the current device

    @property
    def arrived(self) -> bool:
        return bool(self._event.query())

    def wait(self) -> None:
        self._event.synchronize()

    def open(self) -> list[NDArray[Any]]:
        """The arrays of the tensors, once it has arrived."""
        found, begin = [], 0
        array = array_of(self._host)
        for size in self._sizes:
            found.append(array[begin : begin + size].copy())
            begin += size
        self._room.give_back(self._host)
        return found


class Room:
    """Memory of the host that is used again and again."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, torch.dtype], list[Tensor]] = {}
        self._pins = True

    def take(self, size: int, dtype: torch.dtype) -> Tensor:
        rounded = max(1024, 1 << (size - 1).bit_length())
        free = self._free.get((rounded, dtype))
        return free.pop() if free else self._make(rounded, dtype)

    def give_back(self, tensor: Tensor) -> None:
        self._free.setdefault((tensor.numel(), tensor.dtype), []).append(tensor)

    def _make(self, size: int, dtype: torch.dtype) -> Tensor:
        if self._pins:
            try:
                return torch.empty(size, dtype=dtype, device="cpu", pin_memory=True)
            except (RuntimeError, NotImplementedError):  # a device without pinned memory: the copy is waited for
                self._pins = False
        return torch.empty(size, dtype=dtype, device="cpu")
