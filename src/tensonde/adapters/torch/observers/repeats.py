"""Containers that hold one and the same module, with parameters, in several places, and how the program wrote that.

`[nn.Linear(8, 8)] * 3` makes one layer and holds it three times. A module that has a name first (`[layer] * 3`,
`[layer for _ in range(3)]`) may be shared on purpose, so that the two are told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.program.habits import multiplied
from tensonde.program.lines import line_at, line_of

MOST = 16
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def repeated(roots: Iterable[nn.Module], entries: Mapping[int, ModuleRecord]) -> list[dict[str, Any]]:
    """As it stands in the facts."""
    found: list[dict[str, Any]] = []
    for root in roots:
        for container in root.modules():
            if not isinstance(container, _CONTAINERS) or id(container) not in entries or len(found) >= MOST:
                continue
            held = [part for part in container._modules.values() if part is not None]
            times = Counter(id(part) for part in held)
            found += [
                _fact(container, part, times[id(part)], len(held), entries)
                for part in {id(part): part for part in held}.values()
                if times[id(part)] > 1 and any(True for _ in part.parameters()) and id(part) in entries
            ]
    return found


def _fact(
    container: nn.Module, part: nn.Module, times: int, of: int, entries: Mapping[int, ModuleRecord]
) -> dict[str, Any]:
    place = KNOWN.made.place(part)
    number = multiplied(place[0].co_filename, place[1]) if place is not None else None
    return {
        "container": entries[id(container)].name,
        "type": type(container).__name__,
        "part": entries[id(part)].name,
        "part_type": type(part).__name__,
        "times": times,
        "of": of,
        "multiplied": line_at(place[0].co_filename, number) if place is not None and number else None,
        "line": line_of(KNOWN.made.place(container)) or line_of(place),
    }
