"""A module that was seen, and the taps that digest what it gives in the k-th call of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from tensonde.adapters.torch.seams.vanishing import keyed

Tap = Callable[[Any], None]

MOST_CALLS = 64
"""Calls of one module in one step that are observed; a recurrent cell may be called thousands of times."""


class ModuleRecord:
    """`taps[k]` holds, for the k-th call of a step, one (output tap, gradient tap) pair a tensor that the call gave."""

    __slots__ = ("broken", "calls", "eval_step", "hook_step", "name", "ref", "seen", "step", "taps", "type", "watched")

    def __init__(self, name: str, module: nn.Module, forget: Callable[[Any], None]) -> None:
        self.name = name
        self.type = type(module).__name__
        self.ref = keyed(module, forget)
        self.taps: list[list[tuple[Tap | None, Tap | None]]] = []
        self.step = -1
        self.calls = 0
        self.eval_step = -1
        self.hook_step = -1
        self.watched = False
        self.seen = False
        self.broken = False
        """Observing it failed: it is left alone from then on."""

    @property
    def looked_at(self) -> bool:
        return self.step >= 0 or self.eval_step >= 0


def is_container(module: nn.Module) -> bool:
    """Holds modules but is never called itself."""
    return isinstance(module, nn.ModuleList | nn.ModuleDict | nn.ParameterList | nn.ParameterDict)


def is_compiled(module: nn.Module) -> bool:
    """By `torch.compile(module)` or `module.compile()`."""
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
