"""Where the user's program made things: modules, optimizers, schedulers, loaders, initial values.

Noted from the moment that torch is imported, before there is a session: most of it is made before the training begins.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.program.births import Births
from tensonde.program.lines import CodeLine


class Known:
    """What was made so far in this process."""

    def __init__(self) -> None:
        self.made = Births(Ref)
        """Modules, optimizers, schedulers, loaders."""
        self.filled = Births(Ref)
        """Parameters, by the `nn.init` call that filled them last."""
        self.recipes: dict[int, str] = {}
        """That call, as text, by the parameter's id: good while `filled` knows the parameter."""
        self.cast = Births(Ref)
        """Modules, by the call that changed their dtype."""
        self.restored = Births(Ref)
        """Optimizers, by the last call that loaded a state into them."""
        self.evaluated = Births(Ref)
        """Modules, by the last call of `eval()`."""
        self.schedulers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.replicated: weakref.WeakSet[Any] = weakref.WeakSet()
        """DistributedDataParallel modules."""
        self.loaders: weakref.WeakSet[Any] = weakref.WeakSet()
        self.scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.numbers: dict[int, int] = {}
        """Optimizers and schedulers by id: in which order they were made. A number outlives its object."""
        self.loaded: set[int] = set()
        """Modules that a state was loaded into, by id."""
        self.loaded_itself: dict[CodeLine, tuple[str, int]] = {}
        """Lines that load a module from tensors that are its own: its type, and how often."""
        self.stepped: set[int] = set()
        """Optimizers that have stepped, by number."""
        self.made_in: dict[int, int] = {}
        """Optimizers by number: the thread that made them."""
        self.elsewhere: set[int] = set()
        """Optimizers that an unwatched thread uses, by number."""
        self.crowded = False
        """An unwatched thread runs backward passes."""
        self.compiled = False
        self._last = -1

    def files(self) -> list[str]:
        """The user's files that made modules and optimizers."""
        return list(self.made.files)[:8]

    def number(self, thing: Any) -> int:
        return self.numbers.get(id(thing), -1)

    def count(self, thing: Any) -> int:
        """Numbers a thing that was just made."""
        self._last = self.numbers[id(thing)] = self._last + 1
        self.made_in[self._last] = threading.get_ident()
        return self._last

    def mine(self) -> list[Any]:
        """The optimizers whose gradients this thread may look at. Autograd writes gradients without holding the GIL, so reading
        those that another thread computes can end the program."""
        here, main = threading.get_ident(), threading.main_thread().ident
        found = []
        for optimizer in list(self.optimizers):
            number = self.number(optimizer)
            maker = self.made_in.get(number, here)
            if number not in self.elsewhere and (
                number in self.stepped or maker == here or (maker == main and not self.crowded)
            ):
                found.append(optimizer)
        return found


KNOWN = Known()
