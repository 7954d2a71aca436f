"""Learning-rate schedulers: how often they were stepped, in which order, and the numbers that they go by."""

from __future__ import annotations

from typing import Any

import torch

from sonde.adapters.torch.facts import syntax
from sonde.adapters.torch.facts.origins import KNOWN, Place, line, line_at

STEPPED: dict[int, dict[str, Any]] = {}


def stepped(scheduler: Any, place_of: Any) -> None:
    """`scheduler.step()` was called by the user."""
    seen = STEPPED.get(id(scheduler))
    if seen is None:
        place: Place | None = place_of()
        optimizer = scheduler.optimizer
        done = getattr(optimizer, "_opt_called", True)
        STEPPED[id(scheduler)] = {"steps": 1, "before_optimizer": not done, "line": line(place)}
    else:
        seen["steps"] += 1


def scheduler_facts(scheduler: Any, optimizers: list[torch.optim.Optimizer]) -> dict[str, Any]:
    numbers = {
        name: value
        for name, value in vars(scheduler).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("_")
    }
    place = KNOWN.made.place(scheduler)
    optimizer = getattr(scheduler, "optimizer", None)
    return {
        "type": type(scheduler).__name__,
        "made": line(place),
        "optimizer": next((k for k, known in enumerate(optimizers) if known is optimizer), None),
        "base_lrs": [float(lr) for lr in getattr(scheduler, "base_lrs", [])][:16],
        "numbers": numbers,
        "names": _names(scheduler, place),
        **STEPPED.get(id(scheduler), {"steps": 0, "before_optimizer": False, "line": None}),
    }


def _names(scheduler: Any, place: Place | None) -> dict[str, Any]:
    """Numbers that its functions or its construction take from the user's variables, and where those get their value."""
    found: dict[str, Any] = {}
    if place is None:
        return found
    scopes: dict[str, Any] = {}
    path = place[0].co_filename
    for function in getattr(scheduler, "lr_lambdas", []):
        code = getattr(function, "__code__", None)
        if code is not None:
            scope = {name: function.__globals__.get(name) for name in code.co_names}
            cells = function.__closure__ or ()
            scope.update({name: _content(cell) for name, cell in zip(code.co_freevars, cells, strict=False)})
            scopes.update(scope)
    for name in syntax.names_at(path, place[1]):
        scopes.setdefault(name, _main(name))
    for name, value in scopes.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = syntax.assignment(path, name)
            found[name] = {"value": value, "line": line_at(path, number) if number else None}
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _main(name: str) -> Any:
    import __main__

    return getattr(__main__, name, None)
