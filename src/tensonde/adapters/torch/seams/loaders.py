"""Passes over loaders. Each pass over the first loader that the training iterates is an epoch."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.seams.notes import loader_iterated

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

_iterated: weakref.WeakSet[Any] = weakref.WeakSet()
"""Before the training began."""


def observe_epochs(current: Callable[[], Watcher | None], pending: Callable[[], bool]) -> None:
    """Once in a process."""
    original = DataLoader.__iter__

    @functools.wraps(original)
    def iterate(self: Any) -> Any:
        watcher = current()
        loader_iterated(self, sys._getframe(1), watcher)
        if watcher is not None:
            _begins(watcher, self)
        elif pending():
            _iterated.add(self)
        return original(self)

    seams.put(DataLoader, "__iter__", iterate, "count epochs and know which loader trains")


def catch_up(watcher: Watcher) -> None:
    """The training begins: what was iterated before counts."""
    for loader in list(_iterated):
        _begins(watcher, loader)


def _begins(watcher: Watcher, loader: Any) -> None:
    try:
        watcher.epoch_begins(loader)
    except Exception as problem:
        watcher.session.guard.contain("counting epochs", problem)
