"""Naming modules and optimizers that the script hands over."""

from __future__ import annotations

from typing import Any

from torch import nn

from tensonde.adapters.torch.run.watcher import Watcher
from tensonde.adapters.torch.seams.optimizers import note_optimizer
from tensonde.adapters.torch.wrappers import optimizer_behind
from tensonde.errors import UsageError


def attach_all(watcher: Watcher, things: tuple[Any, ...], named: dict[str, Any]) -> None:
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    given = [*things, *named.values()]
    for thing in given:
        optimizer = None if isinstance(thing, nn.Module) else optimizer_behind(thing)
        if optimizer is not None:
            note_optimizer(optimizer, watcher)
        elif not isinstance(thing, nn.Module):
            raise UsageError(f"tensonde.attach was given a {type(thing).__name__}; it takes modules and optimizers.")
    for module in modules:
        watcher.state.roster.meet_root(module)
    for name, thing in named.items():
        if isinstance(thing, nn.Module):
            watcher.state.roster.adopt(thing, name, f"{name}.")
