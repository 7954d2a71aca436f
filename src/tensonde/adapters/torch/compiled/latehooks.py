"""Hooks that are put on a module after it was compiled: the compiled code has no call of them.

Dynamo does not guard on hooks by default (`skip_nnmodule_hook_guards`), so nothing is compiled again.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tensonde.program.lines import CodeLine, line_of

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.graphs import Graphs

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


def noted(graphs: Graphs, module: nn.Module, hook: Any, how: str, place: CodeLine | None) -> None:
    """A hook has been registered from this place of the program."""
    if (
        not graphs.regions
        or place is None
        or how not in REGISTERING
        or not torch._dynamo.config.skip_nnmodule_hook_guards
    ):
        return
    path = graphs.compiled.path(module)
    if path is not None:
        graphs.session.note(
            "hook_after_compiling", module=path, type=type(module).__name__, how=how, step=graphs.state.step,
            hook=getattr(hook, "__name__", type(hook).__name__), regions=len(graphs.regions), place=line_of(place),
        )  # fmt: skip
