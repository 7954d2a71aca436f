"""Hooks that are put on a module after it was compiled: the compiled code has no call of them.

Dynamo does not guard on hooks by default (`skip_nnmodule_hook_guards`), so nothing is compiled again.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling

from sonde.adapters.torch.facts.origins import line, user_place

if TYPE_CHECKING:
    from sonde.adapters.torch.graph.graphs import Graphs

REGISTERING = ("register_forward_hook", "register_forward_pre_hook")


class CompiledModules:
    """The modules that have been compiled so far."""

    def __init__(self) -> None:
        self._roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def add(self, module: Any) -> None:
        """It is called, and something in it is about to be compiled."""
        inner = getattr(module, "_orig_mod", module)
        if isinstance(inner, nn.Module):
            self._roots.add(inner)

    def path(self, module: nn.Module) -> str | None:
        """Its path inside of a compiled module, None where there is none."""
        for root in self._roots:
            for path, part in root.named_modules():
                if part is module:
                    return str(path)
        return None


def install(current: Callable[[], Graphs | None]) -> None:
    for name in REGISTERING:
        _wrap(name, current)


def _wrap(name: str, current: Callable[[], Graphs | None]) -> None:
    original = getattr(nn.Module, name)

    @functools.wraps(original)
    def register(self: nn.Module, hook: Any, *args: Any, **kwargs: Any) -> Any:
        handle = original(self, hook, *args, **kwargs)
        if "torch._dynamo" in sys.modules and not is_dynamo_compiling():
            graphs = current()
            if graphs is not None:
                try:
                    _note(graphs, self, hook, name)
                except Exception as problem:
                    graphs.guard.contain("noting a hook", problem)
        return handle

    setattr(nn.Module, name, register)


def _note(graphs: Graphs, module: nn.Module, hook: Any, how: str) -> None:
    path = graphs.compiled.path(module)
    place = user_place(sys._getframe(2))
    if path is None or place is None or not getattr(torch._dynamo.config, "skip_nnmodule_hook_guards", False):
        return
    graphs.session.note(
        "hook_after_compiling", module=path, type=type(module).__name__, how=how, step=graphs.eager.step,
        hook=getattr(hook, "__name__", type(hook).__name__), regions=len(graphs.regions), place=line(place),
    )  # fmt: skip
