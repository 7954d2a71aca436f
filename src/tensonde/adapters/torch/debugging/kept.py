"""The last two tensors of every site, kept while a debugger is attached.

Activations and gradients are kept by reference (nothing writes into them, or the version counter shows it);
parameters change in place, so their previous values are copies. Past `LIMIT` bytes, only digests remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import bytes_of, gradient_of, shown, version_of

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.parameters import ParameterNames

LIMIT = 1 << 30


class Seen(NamedTuple):
    """`version` is that of the tensor when it was seen; a later one means that it was modified in place."""

    tensor: Tensor
    version: int
    step: int
    size: int


class Kept:
    def __init__(self) -> None:
        self.step = 0
        self._sites: dict[int, tuple[Seen, ...]] = {}  # newest first, of different steps
        self._bytes = 0
        self._values: list[dict[str, Tensor]] = [{}, {}]
        """Of parameters, at the end of the last step and of the one before it."""
        self._gradients: list[dict[str, Tensor]] = [{}, {}]
        self._marks: dict[str, tuple[int, int]] = {}

    def put(self, site: int, tensor: Any) -> None:
        plain = shown(tensor)
        if plain is None:
            return
        size = bytes_of(plain)
        older = self._sites.pop(site, ())
        remaining = tuple(seen for seen in older if seen.step != self.step)[:1]
        self._bytes += sum(seen.size for seen in remaining) - sum(seen.size for seen in older)
        if self._bytes + size <= LIMIT:
            self._bytes += size
            remaining = (Seen(plain, version_of(plain), self.step, size), *remaining)
        if remaining:
            self._sites[site] = remaining

    def get(self, site: int, *, before: bool = False) -> Seen | None:
        """What was seen there last, or in the step before that."""
        seen = self._sites.get(site, ())
        return seen[int(before)] if len(seen) > int(before) else None

    def turn(self, parameters: ParameterNames, step: int) -> None:
        """A step is over, and `step` begins."""
        self.step = step
        for site, seen in list(self._sites.items()):
            if seen[0].step < step - 2:
                self._bytes -= sum(one.size for one in seen)
                del self._sites[site]
        self.snapshot(parameters)

    def snapshot(self, parameters: ParameterNames) -> None:
        with unseen():
            self._snapshot(parameters)

    def _snapshot(self, parameters: ParameterNames) -> None:
        values: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}
        self._marks = {}
        room = LIMIT
        for name, parameter in parameters.live():
            room -= 2 * bytes_of(parameter)
            if room < 0:
                break
            value = shown(parameter)
            if value is not None:
                values[name] = value.clone()
            own = gradient_of(parameter)
            gradient = shown(own) if own is not None else None
            if gradient is not None:
                gradients[name] = gradient.clone()
                self._marks[name] = (id(own), version_of(own))
        self._values = [values, self._values[0]]
        self._gradients = [gradients, self._gradients[0]]

    def value_before(self, name: str) -> Tensor | None:
        """The parameter before the last optimizer step."""
        return self._values[1].get(name)

    def gradient(self, name: str, live: Tensor | None, *, before: bool) -> Tensor | None:
        """The latest gradient, also after the script cleared it; or the one of the step before that."""
        ended = live is None or self._marks.get(name) == (id(live), version_of(live))
        if before:
            return self._gradients[1 if ended else 0].get(name)
        return live if live is not None else self._gradients[0].get(name)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]
