"""Lets the user's script build its model, and steps in when the modules that a bundle needs are all there.

That is the case when a root is called for the first time: construction is over then. Other roots are looked for among
the variables around that call, under the names that they had in the training; else the script goes on until they are
called. It is not let further than the step that the bundle was made in: by then the training had called them all.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
import torch.utils.data
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from tensonde.adapters.torch.replay.bundle.roots import class_name, differs
from tensonde.adapters.torch.run.naming import bindings, name_root
from tensonde.program.frames import foreign_frames

Found = dict[str, nn.Module]


class Rebuild:
    """`found` is called once, with the modules by name, and does not come back; `lost` with a sentence, when the
    script got too far."""

    def __init__(
        self, document: Mapping[str, Any], found: Callable[[Found], None], lost: Callable[[str], None]
    ) -> None:
        self.wanted = {entry["name"]: entry for entry in document["roots"]}
        self.limit = int(document["step"])
        self.found, self.lost = found, lost
        self.roots: weakref.WeakValueDictionary[str, nn.Module] = weakref.WeakValueDictionary()
        self.reason = ""
        self._known: set[int] = set()
        self._inside = False
        self._steps = 0
        self._call = nn.Module.__call__

    def wait(self) -> None:
        """From here on every call of a module is looked at."""
        original, rebuild = self._call, self

        def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if rebuild._inside or torch.utils.data.get_worker_info() is not None:
                return original(self, *args, **kwargs)
            rebuild._inside = True
            try:
                rebuild._look(self, sys._getframe(1))
                return original(self, *args, **kwargs)
            finally:
                rebuild._inside = False

        nn.Module.__call__ = called
        register_optimizer_step_post_hook(self._stepped)

    def stop(self) -> None:
        nn.Module.__call__ = self._call

    def _look(self, module: nn.Module, frame: FrameType) -> None:
        if id(module) not in self._known:
            named = name_root(module, frame, self.roots)
            if not any(root is named.owner for root in self.roots.values()):
                self.roots[named.own] = named.owner
            self._known.update(id(part) for part in named.owner.modules())
            self._known.add(id(module))
        try:
            found = self._resolve(frame)
        except (KeyError, TypeError, AttributeError) as error:
            self.lost(f"the bundle is damaged: {error!r}")
            return
        if found is not None:
            self.stop()
            self.found(found)

    def _resolve(self, frame: FrameType) -> Found | None:
        """All that are needed, or None, and then `reason` says what is amiss."""
        found: Found = {}
        for name, entry in self.wanted.items():
            candidates = [self.roots[name]] if name in self.roots else self._around(name, entry, frame)
            if not candidates:
                self.reason = f"no {name} ({entry['class']}) was called"
                return None
            fitting = [module for module in candidates if not differs(entry, module)]
            if not fitting:
                self.reason = differs(entry, candidates[0])
                return None
            found[name] = fitting[0]
        return found

    def _around(self, name: str, entry: Mapping[str, Any], frame: FrameType) -> list[nn.Module]:
        """A variable of this name; else what is of the same class, when the name came from the class."""
        for candidate in foreign_frames(frame):
            for variable, module in bindings(candidate):
                if variable == name:
                    return [module]
        return [root for root in self.roots.values() if class_name(root) == entry["class"]]

    def _stepped(self, *_: Any) -> None:
        self._steps += 1
        if self._steps > self.limit:
            self.lost(self.reason or f"no module was called in {self._steps} optimizer steps")
