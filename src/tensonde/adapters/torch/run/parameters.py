"""What parameters and buffers are called."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.run.naming import clean
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.adapters.torch.seams.vanishing import forgetting_keys, keyed

_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class ParameterNames:
    """Keeps nothing alive: a name goes when its parameter does."""

    def __init__(self, entries: dict[int, ModuleRecord]) -> None:
        self._entries = entries
        self.names: dict[int, tuple[str, weakref.ref[Tensor]]] = {}
        """By the parameter's id."""
        self.buffers: dict[str, tuple[weakref.ref[nn.Module], str]] = {}
        """The module that holds it, and its name there."""
        self.trained: set[int] = set()
        """Those that an optimizer holds."""
        self.renamed: Callable[[], None] = lambda: None
        """Called when a parameter that went by a number gets its name."""
        self._owner: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._provisional: set[int] = set()
        """Parameters that go by a number until the module that they belong to is called."""
        self._forgetting = forgetting_keys(self.names, self._provisional, self.trained)

    def adopt(self, root: nn.Module, prefix: str) -> None:
        for path, module in root.named_modules():
            base = prefix + (f"{clean(path, root)}." if path else "")
            for name, parameter in module.named_parameters(recurse=False):
                # Put there by torch.func for the time of one call, or to find out shapes, without values.
                if _wrapped(parameter) or parameter.is_meta:
                    continue
                self.call(parameter, base + name)
                self._owner.setdefault(base + name, type(module).__name__)
            for name, buffer in module.named_buffers(recurse=False):
                if buffer is not None and buffer.is_floating_point():
                    self.buffers.setdefault(base + name, (weakref.ref(module), name))
        self._prefixes[self._entries[id(root)].name] = prefix

    def call(self, parameter: Tensor, name: str, *, provisional: bool = False) -> None:
        key = id(parameter)
        if key in self._provisional and not provisional:
            self._provisional.discard(key)
            del self.names[key]
            self.renamed()
        if key not in self.names:
            if provisional:
                self._provisional.add(key)
            self.names[key] = (name, keyed(parameter, self._forgetting))

    def live(self) -> Iterator[tuple[str, Tensor]]:
        for name, reference in list(self.names.values()):
            parameter = reference()
            if parameter is not None:
                yield name, parameter

    def owner_type(self, name: str) -> str:
        """The class of the module that holds it."""
        return self._owner.get(name, "")

    def prefix_of(self, root: str) -> str:
        return self._prefixes.get(root, f"{root}.")
