"""The modules that were met, and what each is called."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from tensonde.adapters.torch.run.naming import clean, name_inside, name_root
from tensonde.adapters.torch.run.parameters import ParameterNames
from tensonde.adapters.torch.run.record import ModuleRecord, is_container
from tensonde.adapters.torch.seams.vanishing import forgetting_keys
from tensonde.model.site import Role
from tensonde.session.session import Session


class Roster:
    """Nothing is kept alive: an entry goes when its module does."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.entries: dict[int, ModuleRecord] = {}
        """By the module's id."""
        self.roots: weakref.WeakValueDictionary[str, nn.Module] = weakref.WeakValueDictionary()
        self.names: set[str] = set()
        """Of all modules that were ever met and can be called; models may be gone before the training ends."""
        self.gone: set[str] = set()
        """Those among them that were looked at and are gone."""
        self._replaced: set[str] = set()
        self._vanished = _vanishing(self.entries, self.gone)
        self.parameters = ParameterNames(self.entries)

    def meet_root(self, module: nn.Module) -> None:
        named = name_root(module, sys._getframe(2), self.roots)
        known = next((own for own, root in self.roots.items() if root is named.owner), None)
        if known is not None:  # a part that was added to a root since it was named
            self.adopt(named.owner, known, self.parameters.prefix_of(known))
        else:
            self.adopt(named.owner, named.own, named.prefix)
        if id(module) not in self.entries:
            self.adopt(module, named.own, f"{named.own}.")

    def adopt(self, root: nn.Module, own: str, prefix: str) -> None:
        """Names a module and everything inside it, modules and parameters."""
        self.roots.setdefault(own, root)
        for path, module in root.named_modules():
            name = own if not path else prefix + clean(path, root)
            if not is_container(module):
                self.names.add(name)
            if id(module) not in self.entries:
                self.entries[id(module)] = self._entry(name, module)
        self.parameters.adopt(root, prefix)

    def _entry(self, name: str, module: nn.Module) -> ModuleRecord:
        return ModuleRecord(name, module, self._vanished)

    def meet(self, module: nn.Module, stack: list[ModuleRecord], step: int) -> ModuleRecord:
        """A module is called that was not there when its root was named: made, replaced or hidden in a list."""
        if stack:
            parent = stack[-1]
            holder = parent.ref()
            inside = name_inside(holder, module) if holder is not None else type(module).__name__
            is_root = parent.name in self.roots
            prefix = self.parameters.prefix_of(parent.name) if is_root else f"{parent.name}."
            name = prefix + inside
            if name not in self._replaced and (name, Role.OUT, None) in self._session.site_ids:
                self._replaced.add(name)  # told once: some are made anew in every call
                self._session.note("module_replaced", module=name, step=step)
            self.adopt(module, name, f"{name}.")
            self.roots.pop(name, None)
        else:
            self.meet_root(module)
        return self.entries[id(module)]


def _vanishing(entries: dict[int, ModuleRecord], gone: set[str]) -> Callable[[Any], None]:
    forget = forgetting_keys(entries)

    def vanished(reference: Any) -> None:
        entry = entries.get(reference.key)
        if entry is not None and entry.looked_at:
            gone.add(entry.name)
        forget(reference)

    return vanished
