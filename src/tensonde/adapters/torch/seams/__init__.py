"""The list of everything that Tensonde replaces in torch.

`put` is the only way to replace an attribute of torch for good; a test compares the list with an untouched torch.
`tensonde doctor --seams` prints it. `lifted.py` takes the hottest ones out while Tensonde rests.

The list leaves out what is not replaced for good: the tracer takes `autograd.Function.apply` for the time of a traced step,
`tensonde replay` takes `nn.Module.__call__` until the model is built, and two hooks around optimizer steps are registered with torch.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class Seam:
    owner: str
    """A module or class, by its full name."""
    attribute: str
    why: str


SEAMS: list[Seam] = []


def put(owner: Any, attribute: str, wrapper: Any, why: str) -> None:
    """Replaces `owner.attribute`. `why` completes the sentence "Tensonde wraps it to ..."."""
    note(owner, attribute, why)
    setattr(owner, attribute, wrapper)


def note(owner: Any, attribute: str, why: str) -> None:
    """Lists a replacement that `lifted.py` makes."""
    SEAMS.append(Seam(name_of(owner), attribute, why))


def name_of(owner: Any) -> str:
    return str(owner.__name__) if inspect.ismodule(owner) else f"{owner.__module__}.{owner.__qualname__}"
