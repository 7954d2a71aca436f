"""Whose memory the calls on a tape read: asked only when an op outside of modules writes to something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.replay.call import Slot, TapedCall
from tensonde.adapters.torch.replay.restore.writes import storage_of


class TapedMemory:
    """Each call is looked at once. `entries` is always the tape's list, which only grows between two calls of `clear`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._foreign: set[int] = set()
        self._owned: set[int] = set()
        self._readers: dict[int, list[TapedCall]] = {}
        self._users: dict[Slot, list[TapedCall]] = {}
        self._roots: set[int] = set()
        self._seen = 0

    def look(self, entries: list[TapedCall]) -> None:
        for entry in entries[self._seen :]:
            for item in leaves((entry.args, entry.kwargs)):
                if isinstance(item, Slot):
                    self._users.setdefault(item, []).append(entry)
                else:
                    storage = storage_of(item)
                    self._foreign.add(storage)
                    self._readers.setdefault(storage, []).append(entry)
            if isinstance(entry.call, nn.Module) and id(entry.call) not in self._roots:
                self._roots.add(id(entry.call))
                self._owned.update(storage_of(t) for t in (*entry.call.parameters(), *entry.call.buffers()))
        self._seen = len(entries)

    def is_foreign(self, tensor: Tensor) -> bool:
        """Its memory was there before the tape's calls: a tensor that they made may be a view of such."""
        storage = storage_of(tensor)
        return storage in self._foreign or storage in self._owned

    def is_owned(self, tensor: Tensor) -> bool:
        """By a module that was called."""
        return storage_of(tensor) in self._owned

    def affected(self, tensor: Tensor) -> list[TapedCall]:
        """The calls that read this memory, and those that used what came of it. They are not named again."""
        found: dict[int, TapedCall] = {}
        queue = self._readers.pop(storage_of(tensor), [])
        while queue:
            entry = queue.pop()
            if id(entry) not in found:
                found[id(entry)] = entry
                for slot in entry.outputs:
                    queue += self._users.pop(slot, [])
        return list(found.values())

    def taken_off(self, count: int) -> None:
        """This many calls that had been looked at are no longer on the tape."""
        self._seen -= count


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, Tensor | Slot):
        yield value


def in_place(name: str) -> bool:
    """Whether a function of this name writes to its first argument, a tensor or a list of them."""
    if name.startswith("__"):
        return name in ("__setitem__", "__set__") or (
            name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_")
