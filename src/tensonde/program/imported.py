"""Tells when a module has been imported, in a process that may never import it. Imports next to nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], object]

_waiting: dict[str, list[Then]] = {}


def when_imported(name: str, then: Then) -> None:
    """Calls `then` with the module as soon as its code has run, before the statement that imports it goes on; at once where it has run
    already. `then` must not raise."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        then(module)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(then)


class _Finder:
    """Finds nothing by itself: it asks the others, and has the loader that they found call back."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._asking.discard(name)
        if spec is not None:
            _call_back(name, spec.loader)
        return spec


def _call_back(name: str, loader: Any) -> None:
    """The loader stays the object that it is: programs look at it, and read files through it."""
    if not hasattr(loader, "__dict__") or isinstance(loader, type) or not hasattr(loader, "exec_module"):
        return

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        loader.exec_module(module)
        if module.__name__ == name:
            for then in _waiting.pop(name, ()):
                then(module)

    loader.exec_module = exec_module
