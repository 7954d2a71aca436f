"""Parameters that are initialised again after an optimizer has trained them.

Counted for each optimizer, so that a program which makes a new optimizer with each new start (folds, seeds) counts one
at most. Called by any thread that initialises; a model is initialised seldom.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.program.lines import CodeLine, line_of

STEPS: dict[int, int] = {}
"""Steps of each optimizer, by number."""
_SEEN: dict[int, dict[int, tuple[weakref.ref[Any], int]]] = {}
"""By the optimizer's number, then by the parameter's id: how often it was filled again."""
_LAST: dict[int, tuple[CodeLine | None, int]] = {}


def noted(tensor: torch.Tensor, place: CodeLine | None) -> None:
    """An initialiser has filled a tensor."""
    if not STEPS or tensor.dim() < 2:
        return
    for optimizer in list(KNOWN.optimizers):
        number = KNOWN.number(optimizer)
        if STEPS.get(number) and any(tensor is held for group in optimizer.param_groups for held in group["params"]):
            known = _SEEN.setdefault(number, {})
            ref, count = known.get(id(tensor), (None, 0))
            count = count if ref is not None and ref() is tensor else 0
            known[id(tensor)] = (Ref(tensor), count + 1)
            _LAST[number] = (place, STEPS[number])


def refilled(places: dict[int, int]) -> list[dict[str, Any]]:
    """`places` are the numbers of optimizers that are in the facts, and where."""
    found = []
    for optimizer in list(KNOWN.optimizers):
        number = KNOWN.number(optimizer)
        known = _SEEN.get(number)
        if not known or number not in places:
            continue
        held = [p for group in optimizer.param_groups for p in group["params"] if p.dim() >= 2 and p.requires_grad]
        again = [known[id(p)][1] for p in held if id(p) in known]
        place, steps = _LAST[number]
        found.append(
            {
                "optimizer": places[number],
                "times": min(again, default=0),
                "matrices": len(again),
                "of": len(held),
                "last_after_steps": steps,
                "line": line_of(place),
            }
        )
    return found
