"""Parameters and buffers that were given memory by `Module.to_empty()`, as after a model was made on the meta device, and never any values.

Their memory is summed up when it is new and when a model is first called. What was written since has another sum, or at least another version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

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

    def noted(self, module: nn.Module, place: CodeLine | None) -> None:
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
        if not self._new:
            return
        known = {id(tensor): (name, buffer) for name, tensor, buffer in _named(root)}
        left = []
        for one in self._new:
            tensor = one.tensor()
            if tensor is None:
                continue
            if id(tensor) not in known:
                left.append(one)
                continue
            name, buffer = known[id(tensor)]
            held = values_of(tensor)
            if held is None or memory_sum(held) != one.content or _versions(tensor, held) != one.versions:
                continue
            # New memory is often zero. A bias or a statistic may have been made zero in a way that leaves no trace.
            if (len(shape_of(tensor)) < 2 or buffer) and not bool(held.any()):
                continue
            if len(self._found) < MOST_TOLD:
                self._found.append({"name": name, "buffer": buffer, "line": line_of(one.place)})
        self._new = left

    def facts(self) -> list[Json]:
        return self._found


def _versions(tensor: Any, held: Tensor) -> tuple[int, ...]:
    return tensor._version, held._version


def _named(root: nn.Module) -> list[tuple[str, Tensor, bool]]:
    return [(name, one, False) for name, one in root.named_parameters()] + [
        (name, one, True) for name, one in root.named_buffers()
    ]


EMPTIED = Emptied()
