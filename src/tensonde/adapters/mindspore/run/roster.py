"""The cells that were met, and what each is called."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensonde.adapters.mindspore.run.entry import Entry
from tensonde.adapters.mindspore.run.naming import cells_in, is_container, name_inside, name_root

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative


class Roster:
    """Nothing is kept alive: an entry goes when its cell does."""

    def __init__(self, training: PyNative) -> None:
        self._training = training
        self.entries: dict[int, Entry] = {}
        """By the cell's id."""
        self.roots: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.names: set[str] = set()
        """Of all cells that were ever met and can be called; models may be gone before the training ends."""
        self.gone: set[str] = set()
        """Those among them that were looked at and are gone."""

    def of(self, cell: Any) -> Entry:
        """The entry of a cell that is called."""
        entry = self.entries.get(id(cell))
        if entry is None:
            entry = self._meet(cell)
        return entry

    def _meet(self, cell: Any) -> Entry:
        stack = self._training.stack
        if not stack:
            self.meet_root(cell)
        else:  # made, replaced or hidden in a list since its root was named
            self._training.facts.made.met(cell)
            parent = stack[-1]
            holder = parent.ref()
            inside = name_inside(holder, cell) if holder is not None else type(cell).__name__
            prefix = (
                self._training.parameters.prefix_of(parent.name) if parent.name in self.roots else f"{parent.name}."
            )
            self.adopt(cell, prefix + inside, f"{prefix}{inside}.", as_root=False)
        return self.entries[id(cell)]

    def meet_root(self, cell: Any) -> None:
        named = name_root(cell, sys._getframe(1), self.roots)
        known = next((own for own, root in self.roots.items() if root is named.owner), None)
        if known is not None:  # a part that was added to a root since it was named
            self.adopt(named.owner, known, self._training.parameters.prefix_of(known))
        else:
            self.adopt(named.owner, named.own, named.prefix)
        if id(cell) not in self.entries:
            self.adopt(cell, named.own, f"{named.own}.")

    def adopt(self, root: Any, own: str, prefix: str, *, as_root: bool = True) -> None:
        """Names a cell and everything inside it, cells and parameters."""
        if as_root:
            self.roots.setdefault(own, root)
        for path, cell in cells_in(root):
            name = prefix + path if path else own
            if not is_container(cell):
                self.names.add(name)
            if id(cell) not in self.entries:
                self.entries[id(cell)] = Entry(name, cell, self._forgetting(id(cell)))
        self._training.parameters.adopt(root, own, prefix)

    def _forgetting(self, key: int) -> Callable[[Any], None]:
        entries, gone = self.entries, self.gone

        def vanished(_: Any) -> None:
            entry = entries.pop(key, None)
            if entry is not None and entry.looked_at:
                gone.add(entry.name)

        return vanished
