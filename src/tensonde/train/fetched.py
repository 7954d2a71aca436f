"""The batches that loaders have given, and how many there are in an epoch."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from torch.utils.data import DataLoader

from tensonde.train.loop import length


class Fetched:
    """Counts from when it is made to the end of the process; `tensonde lr` ends it."""

    def __init__(self) -> None:
        self.length: int | None = None
        """Batches per epoch of the loader that gave the last batch: a loader that was only looked through is not it."""
        self._counts: dict[int | None, int] = {}
        self._lengths: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
        self._kinds: set[type] = set()
        iterate = DataLoader.__iter__

        @functools.wraps(iterate)
        def iterating(loader: Any) -> Any:
            iterator = iterate(loader)
            self._lengths[iterator] = length(loader)
            self._watch(type(iterator))
            return iterator

        DataLoader.__iter__ = iterating

    @property
    def count(self) -> int:
        """Batches so far from loaders as long as that one, which leaves evaluations in between out."""
        return self._counts.get(self.length, 0)

    def _watch(self, kind: type) -> None:
        owner: Any = next(base for base in kind.__mro__ if "__next__" in vars(base))
        if owner in self._kinds:
            return
        self._kinds.add(owner)
        give = owner.__next__

        @functools.wraps(give)
        def giving(iterator: Any) -> Any:
            batch = give(iterator)
            if iterator in self._lengths:
                self.length = self._lengths[iterator]
                self._counts[self.length] = self._counts.get(self.length, 0) + 1
            return batch

        owner.__next__ = giving
