"""The random generators that ops draw from: the host's, and those of devices, which have their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.capture import capturing, device_module


class Drawn:
    """Where the generators stand now. Reading that waits for no device: the states are kept by the host."""

    __slots__ = ("devices", "host")

    def __init__(self) -> None:
        self.host: Tensor = torch.default_generator.get_state()
        self.devices: list[Any] = device_states()

    def put(self) -> None:
        torch.default_generator.set_state(self.host)
        put_device_states(self.devices)


def device_states() -> list[Any]:
    """Empty where no device has been used, or where one does not tell."""
    if not _devices() or capturing():
        return []
    return [get() for get, _ in _devices()]


def put_device_states(states: list[Any]) -> None:
    if states and not capturing():
        for (_, put), state in zip(_devices(), states, strict=False):
            put(state)


def seed(number: int) -> None:
    """All of them alike, for draws of our own."""
    torch.default_generator.manual_seed(number)
    module = device_module()
    if module is not None and _devices():
        (getattr(module, "manual_seed_all", None) or module.manual_seed)(number)


_found: list[tuple[Callable[[], Any], Callable[[Any], None]]] | None = None


def _devices() -> list[tuple[Callable[[], Any], Callable[[Any], None]]]:
    """How to get and to put the state of each device's generator."""
    global _found
    if _found is None:
        module = device_module()
        if module is None:
            return []  # nothing has been computed there yet
        if not hasattr(module, "get_rng_state"):
            _found = []
        elif module.__name__ == "torch.mps":  # there is one, and it takes no index
            _found = [(module.get_rng_state, module.set_rng_state)]
        else:
            _found = [_of(module, index) for index in range(module.device_count())]
    return _found


def _of(module: Any, index: int) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: module.get_rng_state(index), lambda state: module.set_rng_state(state, index)
