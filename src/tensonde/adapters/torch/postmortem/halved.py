"""Parameters of half precision that a GradScaler refuses: which, and the line that made them so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.observers.inventory import cast_line
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.definition import roots
from tensonde.adapters.torch.postmortem.holder import held_by
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.wrappers import optimizer_behind


def halved(failure: Failure) -> dict[str, Any] | None:
    """The first one, how many they are, and where: the call that cast its module, or one around it; else the one call
    that cast anything to half precision; else where the module was made (`dtype=torch.float16`)."""
    half = [p for p in _optimized(failure) if p.dtype is torch.float16]
    if not half:
        return None
    owner = _owner(half[0], failure)
    if owner is None:
        held = held_by(half[0], failure)
        return {"count": len(half), "name": (held or {}).get("name", "?"), "line": (held or {}).get("line")}
    chain, name = owner
    lines = [line for module in chain if (line := _cast_to_half(module)) is not None]
    if not lines:
        every = [line for root in roots(failure) for m in root.modules() if (line := _cast_to_half(m)) is not None]
        lines = every if len({(line["file"], line["line"]) for line in every}) == 1 else []
    made = [line for module in chain if (line := KNOWN.made.line(module)) is not None]
    return {"count": len(half), "name": name, "line": next(iter([*lines, *made]), None)}


def _optimized(failure: Failure) -> list[Tensor]:
    for place in reversed(failure.places):
        for held in place.frame.f_locals.values():
            optimizer = optimizer_behind(held)
            if optimizer is not None:
                return [p for group in optimizer.param_groups for p in group["params"]]
    return []


def _owner(parameter: Tensor, failure: Failure) -> tuple[list[nn.Module], str] | None:
    """The modules around a parameter, innermost first, and its name."""
    for root in roots(failure):
        for name, held in root.named_parameters():
            if held is parameter:
                parts = name.split(".")[:-1]
                chain = [root]
                for part in parts:
                    chain.append(chain[-1]._modules[part])
                return chain[::-1], name
    return None


def _cast_to_half(module: nn.Module) -> dict[str, Any] | None:
    held = next(module.parameters(), None)
    return cast_line(module) if held is not None and held.dtype is torch.float16 else None
