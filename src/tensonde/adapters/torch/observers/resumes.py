"""Optimizers that are given the state of an earlier run, and the learning rates that they then step with.

Only those whose schedule was under way count: the state has a learning rate far below the one that it began with. Of the rates after that, the
first few that differ are kept: they tell whether the schedule goes on or begins again.
"""

from __future__ import annotations

from typing import Any

import torch

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.program.lines import CodeLine, line_of

UNDER_WAY = 0.7
RATES = 6
_RESUMED: dict[int, dict[str, Any]] = {}


def noted(optimizer: torch.optim.Optimizer, place: CodeLine | None) -> None:
    """A state was loaded into an optimizer."""
    number, group = KNOWN.number(optimizer), optimizer.param_groups[0]
    rate, first = group.get("lr"), group.get("initial_lr")
    _RESUMED.pop(number, None)
    if not optimizer.state or not isinstance(rate, float) or not isinstance(first, float):
        return
    if 0 < rate < UNDER_WAY * first and len(_RESUMED) < RATES:
        _RESUMED[number] = {"lr": rate, "initial_lr": first, "rates": [], "place": place}


def stepped(optimizer: torch.optim.Optimizer, number: int) -> None:
    """An optimizer has stepped; next to nothing to do for one that was not resumed."""
    known = _RESUMED.get(number)
    if known is None:
        return
    rates, rate = known["rates"], optimizer.param_groups[0].get("lr")
    if len(rates) < RATES and isinstance(rate, float) and (not rates or rates[-1] != rate):
        rates.append(rate)


def resumed(places: dict[int, int]) -> list[dict[str, Any]]:
    """As it stands in the facts; `places` are the numbers of optimizers that are in them, and where."""
    return [
        {
            "optimizer": places[number],
            "lr": known["lr"],
            "initial_lr": known["initial_lr"],
            "rates": list(known["rates"]),
            "line": line_of(known["place"]),
        }
        for number, known in _RESUMED.items()
        if number in places
    ]
