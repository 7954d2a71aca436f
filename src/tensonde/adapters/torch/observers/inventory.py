"""Optimizers and modules as the facts describe them: what they are, where they were made, and their plain settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.divisions import divisions_of_step
from tensonde.adapters.torch.observers.defaults import made_with, unread
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.program import queries
from tensonde.program.frames import USER, owner_of
from tensonde.program.lines import line_at, line_of

MOST_MODULES = 2000


def optimizer_facts(optimizer: torch.optim.Optimizer, roots: Iterable[nn.Module]) -> dict[str, Any]:
    registered = {id(p) for root in roots for p in root.parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        "type": type(optimizer).__name__,
        "made": KNOWN.made.line(optimizer),
        "groups": [_group(group) for group in optimizer.param_groups[:64]],
        "parameters": len(held),
        "divisions": divisions_of_step(optimizer),
        "unknown": [list(p.shape) for p in held if id(p) not in registered][:200],
        "unread": unread(optimizer),
        "made_with": made_with(optimizer),
    }


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """Its plain hyperparameters, and how many parameters it has."""
    found: dict[str, Any] = {"parameters": len(group["params"])}
    for key, value in group.items():
        if isinstance(value, Tensor) and value.numel() == 1:
            found[key] = float(value)
        elif isinstance(value, int | float | str) or (key == "betas" and isinstance(value, tuple)):
            found[key] = value
    return found


def module_facts(entries: Iterable[ModuleRecord], roots: Iterable[nn.Module]) -> dict[str, dict[str, Any]]:
    """Of those that are alive, by their names."""
    inside = {id(m) for root in roots for m in root.modules()}
    found = {}
    for entry in list(entries)[:MOST_MODULES]:
        module = entry.ref()
        if module is not None:
            found[entry.name] = {
                "type": entry.type,
                "library": type(module).__module__.startswith("torch.nn"),
                "installed": _installed(module),
                "made": KNOWN.made.line(module),
                "cast": cast_line(module),
                "training": module.training,
                "hidden": id(module) not in inside,
                "settings": settings(module),
            }
    return found


def _installed(module: nn.Module) -> bool:
    """Whether what it computes is written in a library, torch's included."""
    code = getattr(getattr(type(module), "forward", None), "__code__", None)  # scripted modules have none
    return code is not None and owner_of(code) != USER


def cast_line(module: nn.Module) -> dict[str, Any] | None:
    """Where its dtype was chosen: the name that was given to the call, if it has one, else the call."""
    place = KNOWN.cast.place(module)
    if place is None:
        return None
    path = place[0].co_filename
    for name in sorted(queries.names_at(path, place[1])):
        number = queries.assignment(path, name, before=place[1])
        if number is not None and "float" in line_at(path, number)["code"]:
            return line_at(path, number)
    return line_of(place)


def settings(module: nn.Module) -> dict[str, Any]:
    """The plain values among its attributes: p, eps, momentum, in_features..."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, bool | int | float | str):
            found[name] = value
        elif (
            type(value) in (tuple, list, torch.Size)
            and len(value) <= 8
            and all(isinstance(v, int | float) for v in value)
        ):
            found[name] = list(value)
        elif inspect.isroutine(value):
            found[name] = getattr(value, "__name__", "")
    return dict(list(found.items())[:32])
