"""Values that observers read of tensors which may lie on a device.

`later` waits for nothing: what is read is copied to pinned memory behind the program, and is told when it has arrived, mostly at the end of the next step.
Where an answer is needed on the spot, `may_wait` says whether a device may be waited for: in the first steps, and a few times afterwards.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import bytes_of, is_dense, is_plain

EARLY = 8
"""The first steps, in which observers may wait for a device."""
LATER = 64
"""How often they may afterwards, in all: evaluations come late."""
MOST_UNDER_WAY = 64
MOST_BYTES = 8 << 20
"""Of one request. What is larger is not read."""

log = logging.getLogger("tensonde.session")


class Reading:
    """Belongs to the training thread."""

    def __init__(self) -> None:
        self.used = False
        """Something was on a device."""
        self.step = 0
        self._left = LATER
        self._pins = True
        self._under_way: deque[tuple[list[torch.Event], list[Tensor], Callable[..., None]]] = deque()

    def may_wait(self, tensor: Tensor | None = None) -> bool:
        """For this tensor, or for any on a device."""
        if tensor is not None and tensor.device.type == "cpu":
            return True
        self.used = True
        if capturing():
            return False
        if self.step < EARLY:
            return True
        self._left -= 1
        return self._left >= 0

    def can_read(self, tensor: Tensor) -> bool:
        """It has values, which may be read here and now."""
        return is_plain(tensor) or (is_dense(tensor) and self.may_wait(tensor))

    def seldom(self, tensor: Tensor) -> bool:
        """It is on a device, and these are no longer the first steps: looks cost a launch and a copy there, so there are fewer."""
        return tensor.device.type != "cpu" and self.step >= EARLY

    def after(self, then: Callable[[], None]) -> None:
        """Calls `then` when all has been told that was asked before."""
        if self._under_way:
            self._under_way.append(([], [], then))
        else:
            then()

    def later(self, tensors: Sequence[Tensor], then: Callable[..., None]) -> bool:
        """Calls `then` with tensors of the same values on the host: at once where they are there. False if it never will."""
        if all(tensor.device.type == "cpu" for tensor in tensors):
            then(*tensors)
            return True
        self.used = True
        if capturing() or len(self._under_way) >= MOST_UNDER_WAY or sum(map(bytes_of, tensors)) > MOST_BYTES:
            return False
        if not self._pins and not self.may_wait():
            return False
        with unseen(), torch.no_grad():
            host = [self._sent(tensor.detach()) for tensor in tensors]
            events = []
            for device in {tensor.device for tensor in tensors if tensor.device.type != "cpu"}:
                event = torch.Event(device=device)
                event.record(torch.accelerator.current_stream(device))
                events.append(event)
        self._under_way.append((events, host, then))
        return True

    def _sent(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu":
            return tensor.clone()
        if not tensor.numel():
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        if self._pins:
            try:
                host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
            except (RuntimeError, NotImplementedError):
                self._pins = False
            else:
                return host.copy_(tensor, non_blocking=True)
        return tensor.cpu()

    def arrive(self, *, wait: bool = False) -> None:
        """Tells what has come. `wait`: for all of it."""
        while self._under_way and not capturing():
            events, host, then = self._under_way[0]
            if not all(event.query() for event in events):
                if not wait:
                    return
                for event in events:
                    event.synchronize()
            self._under_way.popleft()
            try:
                with unseen(), torch.no_grad():
                    then(*host)
            except Exception as problem:  # a look that failed is none
                log.debug("reading what came from a device failed", exc_info=problem)


READING = Reading()


def brought(tensor: Tensor) -> Tensor:
    """Waits for a tensor of the same values on the host, the tensor itself where it is there."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def same_places(parameters: Sequence[Any]) -> dict[tuple[torch.device, torch.dtype], list[int]]:
    """Positions by device and dtype: what can be brought together in one op."""
    found: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for k, parameter in enumerate(parameters):
        found.setdefault((parameter.device, parameter.dtype), []).append(k)
    return found
