"""The last two tensors of every site, kept while a debugger is attached.

Activations and gradients are kept by reference; parameters change in place, so their previous values are copies. Past `LIMIT`
bytes, only digests remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.mindspore.tensors import bytes_of, values_of

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.parameters import Parameters

LIMIT = 1 << 30


class Seen(NamedTuple):
    tensor: Any
    step: int
    size: int


class Kept:
    def __init__(self) -> None:
        self.step = 0
        self._sites: dict[int, tuple[Seen, ...]] = {}  # newest first, of different steps
        self._bytes = 0
        self._values: list[dict[str, NDArray[Any]]] = [{}, {}]
        """Of parameters, at the end of the last step and of the one before it."""

    def put(self, site: int, tensor: Any) -> None:
        size = tensor.nbytes if isinstance(tensor, np.ndarray) else bytes_of(tensor)
        older = self._sites.pop(site, ())
        remaining = tuple(seen for seen in older if seen.step != self.step)[:1]
        self._bytes += sum(seen.size for seen in remaining) - sum(seen.size for seen in older)
        if self._bytes + size <= LIMIT:
            self._bytes += size
            remaining = (Seen(tensor, self.step, size), *remaining)
        if remaining:
            self._sites[site] = remaining

    def get(self, site: int, *, before: bool = False) -> Seen | None:
        """What was seen there last, or in the step before that."""
        seen = self._sites.get(site, ())
        return seen[int(before)] if len(seen) > int(before) else None

    def turn(self, parameters: Parameters, step: int) -> None:
        """A step is over, and `step` begins."""
        self.step = step
        for site, seen in list(self._sites.items()):
            if seen[0].step < step - 2:
                self._bytes -= sum(one.size for one in seen)
                del self._sites[site]
        self.snapshot(parameters)

    def snapshot(self, parameters: Parameters) -> None:
        values: dict[str, NDArray[Any]] = {}
        room = LIMIT
        for name, parameter in parameters.live():
            room -= bytes_of(parameter)
            if room < 0:
                break
            value = values_of(parameter)
            if value is not None:
                values[name] = value.copy()
        self._values = [values, self._values[0]]

    @property
    def empty(self) -> bool:
        """No parameter is known."""
        return not self._values[0]

    def value_now(self, name: str) -> NDArray[Any] | None:
        """The parameter since the last optimizer step."""
        return self._values[0].get(name)

    def value_before(self, name: str) -> NDArray[Any] | None:
        """The parameter before the last optimizer step."""
        return self._values[1].get(name)

    def clear(self) -> None:
        self._sites.clear()
        self._bytes = 0
        self._values = [{}, {}]
