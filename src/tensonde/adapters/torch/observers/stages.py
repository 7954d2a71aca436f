"""Stages of a pipeline that send tensors to each other: which gradient comes back for what was sent, and what it is used for.

The n-th tensor that one rank sends to another is the n-th that the other receives. So each rank notes numbers only, and they are compared afterwards.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from weakref import ReferenceType, ref

from torch import Tensor

from tensonde.program.lines import CodeLine, line_of

MOST = 64
"""Gradients that are followed; then no more is noted."""
MOST_HELD = 256


class Stages:
    """One per process: a stage may receive before it has called any module."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()
        self._sent: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        """By address: to whom, the how many-th, and its shape."""
        self._received: list[tuple[ReferenceType[Tensor], int, int]] = []
        self._returned: list[dict[str, int]] = []
        self._used: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        return max(len(self._returned), len(self._used)) >= MOST

    def sends(self, tensor: Any, peer: int) -> None:
        self._counts["sent", peer] += 1
        number = self._counts["sent", peer]
        if self.over or not isinstance(tensor, Tensor) or not tensor.numel():
            return
        address = tensor.data_ptr()
        for held, other, came in self._received:
            one = held()
            if one is not None and one.is_leaf and one.grad is not None and one.grad.data_ptr() == address:
                self._returned.append({"peer": peer, "sent": number, "received": came if other == peer else -1})
                return
        if len(self._sent) >= MOST_HELD:
            del self._sent[next(iter(self._sent))]
        self._sent.pop(address, None)
        self._sent[address] = peer, number, tuple(tensor.shape)

    def receives(self, tensor: Any, peer: int) -> None:
        self._counts["received", peer] += 1
        if self.over or not isinstance(tensor, Tensor):
            return
        self._received = [one for one in self._received[-MOST_HELD:] if one[0]() is not None and one[0]() is not tensor]
        self._received.append((ref(tensor), peer, self._counts["received", peer]))

    def backward(self, roots: Any, gradients: Any, place: CodeLine | None) -> None:
        """A backward pass from a tensor that was sent, with a gradient that was received."""
        if not self._received or not self._sent or self.over:
            return
        for root, gradient in zip(_listed(roots), _listed(gradients), strict=False):
            if not isinstance(root, Tensor) or not isinstance(gradient, Tensor):
                continue
            known = self._sent.get(root.data_ptr())
            came = next((one for one in self._received if (held := one[0]()) is not None and held is gradient), None)
            if known is not None and came is not None and known[0] == came[1] and known[2] == tuple(root.shape):
                self._used.append({"peer": known[0], "sent": known[1], "received": came[2], "line": line_of(place)})

    def facts(self) -> dict[str, Any]:
        return {"returned": self._returned, "used": self._used}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


STAGES = Stages()
