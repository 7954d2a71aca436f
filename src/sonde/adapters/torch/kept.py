"""Tensors of this step and of the one before, kept while a debugger is attached.

Activations and gradients are kept by reference (nobody writes into them, or the version counter tells);
parameters change in place, so their previous values are copies. Past `LIMIT` bytes a step, only digests remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from sonde.adapters.torch.parameters import Parameters

LIMIT = 1 << 30


class Kept:
    def __init__(self) -> None:
        self.now: dict[int, tuple[Tensor, int]] = {}  # site → tensor, version when it was seen
        self.before: dict[int, tuple[Tensor, int]] = {}
        self.parameters_before: dict[str, Tensor] = {}
        self.gradients_before: dict[str, Tensor] = {}
        self._bytes = 0

    def put(self, site: int, tensor: Any) -> None:
        size = tensor.numel() * tensor.element_size() if tensor.layout is not None else 0
        if self._bytes + size > LIMIT:
            return
        self._bytes += size
        plain = tensor.detach()
        self.now[site] = (plain, plain._version)

    def turn(self, parameters: Parameters) -> None:
        """The step is over."""
        self.before, self.now, self._bytes = self.now, {}, 0
        self.parameters_before, self.gradients_before = self._snapshot, self._gradients
        self._snapshot, self._gradients = {}, {}
        room = LIMIT
        for name, parameter in parameters.live():
            room -= 2 * parameter.numel() * parameter.element_size()
            if room < 0:
                break
            self._snapshot[name] = parameter.detach().clone()
            if parameter.grad is not None:
                self._gradients[name] = parameter.grad.detach().clone()

    _snapshot: dict[str, Tensor] = {}
    _gradients: dict[str, Tensor] = {}
