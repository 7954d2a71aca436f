"""Parameters and buffers that were given memory by `Module.to_empty()`, as after a model was made on the meta device, and never any values.

Their memory is summed up when it is new and when a model is first called. What was written since has another sum, or at least another version."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, WeakSet, ref

from torch import Tensor, nn

from tensonde.adapters.torch.checksum import memory_sum
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.tensors import shape_of, values_of
from tensonde.program.lines import CodeLine, Json, line_of

MOST, MOST_TOLD = 4096, 64
LARGEST = 1 << 28
"""Bytes that are summed up."""


@dataclass(slots=True)
class _New:
    tensor: ReferenceType[Tensor]
    content: int
    versions: tuple[int, ...]
    place: CodeLine | None


class Emptied:
    """One per process: it happens before there is a session."""

    def __init__(self) -> None:
        self._new: list[_New] = []
        self._bytes = 0
        self._found: list[Json] = []
        self._called: WeakSet[nn.Module] = WeakSet()

    def noted(self, module: nn.Module, place: CodeLine | None) -> None:
        self._called.clear()
        for tensor in (*module.parameters(), *module.buffers()):
            held = values_of(tensor)
            if held is None or not held.numel() or not READING.may_wait(held) or len(self._new) >= MOST:
                continue
            self._bytes += held.numel() * held.element_size()
            content = memory_sum(held) if self._bytes <= LARGEST else None
            if content is not None:
                self._new.append(_New(ref(tensor), content, _versions(tensor, held), place))

    def called(self, root: nn.Module) -> None:
        """A model is about to run."""
        if not self._new or root in self._called:
            return
        self._called.add(root)
        known = {id(tensor): (name, buffer) for name, tensor, buffer in _named(root)}
        left, unwritten = [], []
        for one in self._new:
            tensor = one.tensor()
            if tensor is None:
                continue
            if id(tensor) not in known:
                left.append(one)
                continue
            held = values_of(tensor)
            if held is not None and memory_sum(held) == one.content and _versions(tensor, held) == one.versions:
                weight = len(shape_of(tensor)) > 1 and not known[id(tensor)][1]
                unwritten.append((*known[id(tensor)], weight, bool(held.any()), one.place))
        self._new = left
        garbage = any(filled for *_, filled, _ in unwritten)
        beside = Counter(_owner(name) for name, *_ in unwritten)
        for name, buffer, weight, filled, place in unwritten:
            # New memory is often zero, and `weight.data.zero_()` leaves no trace: a zero alone says nothing.
            sure = filled or (weight and (garbage or beside[_owner(name)] > 1))
            if sure and len(self._found) < MOST_TOLD:
                self._found.append({"name": name, "buffer": buffer, "line": line_of(place)})

    def facts(self) -> list[Json]:
        return self._found


def _versions(tensor: Any, held: Tensor) -> tuple[int, ...]:
    return tensor._version, held._version


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _named(root: nn.Module) -> list[tuple[str, Tensor, bool]]:
    return [(name, one, False) for name, one in root.named_parameters()] + [
        (name, one, True) for name, one in root.named_buffers()
    ]


EMPTIED = Emptied()
