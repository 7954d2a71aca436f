"""A part of a running program under Tensonde: a test, a cell of a notebook. Several may follow each other in one process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tensonde.adapters.registry import ADAPTERS, adapter_of
from tensonde.errors import UsageError
from tensonde.program.imported import when_imported
from tensonde.session.options import Options

if TYPE_CHECKING:
    from tensonde.adapters.adapter import Adapter, Training

log = logging.getLogger("tensonde")
_active: list[Part] = []
_over: list[Part] = []
"""The last one that has ended; none once the program has begun a recording of its own."""
_waiting: set[str] = set()
"""Frameworks that were not imported when a part began; the hook stays, and serves whichever part is active then."""


@dataclass(frozen=True, slots=True)
class Opened:
    adapter: Adapter
    training: Training


class Part:
    """The thread that trains calls all of it. Neither `begin` nor `end` raises once the user's code has begun to run."""

    def __init__(self, options: Options, *, opened: Callable[[Training], None] = lambda training: None) -> None:
        """`opened` is called when the training begins."""
        self.options = options
        self._told = opened
        self.opened: Opened | None = None
        """None until a module is called or an optimizer steps."""

    @property
    def folder(self) -> Path:
        return Path(self.options.run)

    def begin(self) -> None:
        """Raises UsageError where this process is watched already."""
        if _active or _is_watched():
            raise UsageError(
                "this program is watched by Tensonde already, from `tensonde run` or `tensonde.attach` on, and there can be one session at a time."
            )
        _active.append(self)
        for framework in ADAPTERS:
            if framework in sys.modules:
                self._install(framework)
            elif framework not in _waiting:
                _waiting.add(framework)
                when_imported(framework, _imported)

    def _install(self, framework: str) -> None:
        try:
            adapter = adapter_of(framework)
            adapter.install(partial(self._open, adapter))
        except Exception as problem:
            log.warning("could not be installed into %s (%s); the program runs unwatched", framework, problem)

    def _open(self, adapter: Adapter) -> Training | None:
        if self not in _active or self.opened is not None:
            return None
        try:
            training = adapter.open(self.options)
            self.opened = Opened(adapter, training)
            self._told(training)
            return training
        except Exception as problem:
            if os.environ.get("TENSONDE_STRICT") == "1":
                raise
            log.warning("could not begin (%s: %s); the program runs unwatched", type(problem).__name__, problem)
            return None

    def end(self, problem: BaseException | None = None) -> None:
        """With what ended the part, if something did. After it, calls are the framework's own."""
        if self not in _active:
            return
        _active.remove(self)
        _over[:] = [self]
        if self.opened is None:
            for framework in ADAPTERS:
                if framework in sys.modules:
                    adapter_of(framework).withdraw()
            return
        adapter, training = self.opened.adapter, self.opened.training
        failure: dict[str, Any] | None = None
        try:
            if problem is not None:
                failure = training.describe(problem, problem.__traceback__)
                training.session.writer.event("exception", **failure)
        except Exception as second:
            training.session.guard.contain("describing an exception", second)
        adapter.withdraw()
        training.close(failure)


def take_over() -> bool:
    """Whether parts have been watched and none is now, so that the program may begin a recording of its own; asked once."""
    free = bool(_over) and not _active
    _over.clear()
    return free


def _is_watched() -> bool:
    return "TENSONDE_OPTIONS" in os.environ or any(
        adapter_of(framework).current() is not None
        for framework, module in ADAPTERS.items()
        if framework in sys.modules and module in sys.modules
    )


def _imported(module: ModuleType) -> None:
    for part in _active:
        part._install(module.__name__)
