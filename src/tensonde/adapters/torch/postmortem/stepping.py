"""An optimizer whose step raised: at which parameter, with which gradient and state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.traceback import Failure, tensor_fact
from tensonde.program.lines import line_of


def stepping(failure: Failure) -> dict[str, Any] | None:
    places = list(failure.places)
    at = next((k for k, place in enumerate(places) if place.function == "step" and _optimizer(place) is not None), None)
    if at is None:
        return None
    optimizer = _optimizer(places[at])
    assert optimizer is not None
    if any(place.is_user and place.frame.f_locals.get("self") is not optimizer for place in places[at + 1 :]):
        return None  # the closure raised
    held = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, Tensor)]
    parameter = _at_work(held, places[at:]) if held else None
    odd = [p for p in held if _misfits(optimizer, p)]
    if parameter is None or (odd and not _misfits(optimizer, parameter)):
        parameter = odd[0] if odd else None
    if parameter is None:
        return None
    state = optimizer.state.get(parameter) or {}
    known = failure.state.parameters.names.get(id(parameter))
    return {
        "type": type(optimizer).__name__,
        "made": line_of(KNOWN.made.anywhere(optimizer)),
        "loaded": KNOWN.restored.line(optimizer),
        "parameter": known[0] if known is not None else None,
        "value": tensor_fact(parameter),
        "gradient": tensor_fact(parameter.grad) if parameter.grad is not None else None,
        "state": {str(key): tensor_fact(value) for key, value in state.items() if isinstance(value, Tensor)},
        "misfits": _misfits(optimizer, parameter),
        "others": len(odd) - 1 if len(odd) > 1 else 0,
    }


def _optimizer(place: Any) -> torch.optim.Optimizer | None:
    held = place.frame.f_locals.get("self")
    return held if isinstance(held, torch.optim.Optimizer) else None


def _at_work(held: list[Tensor], places: list[Any]) -> Tensor | None:
    """The parameter that the innermost frame has a name for, itself or its gradient."""
    own = {id(p): p for p in held} | {id(p.grad): p for p in held if p.grad is not None}
    for place in reversed(places):
        found = [own[id(v)] for v in place.frame.f_locals.values() if isinstance(v, Tensor) and id(v) in own]
        if found:
            return found[-1]
    return None


def _misfits(optimizer: torch.optim.Optimizer, parameter: Tensor) -> list[str]:
    """Entries of its state that have as many dimensions as it has, and another shape."""
    state = optimizer.state.get(parameter) or {}
    return [
        str(key)
        for key, value in state.items()
        if isinstance(value, Tensor) and value.dim() == parameter.dim() > 0 and value.shape != parameter.shape
    ]
