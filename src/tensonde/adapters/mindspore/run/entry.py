"""A cell that was seen, and the sites of what it gives in the k-th call of a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tensonde.adapters.mindspore.tensors import dtype_name, is_floating, shape_of
from tensonde.model.site import Kind, Role, SourceLine
from tensonde.program.frames import user_line
from tensonde.session.session import Session

MOST_CALLS = 64
"""Calls of one cell in one step that are observed; a recurrent cell may be called thousands of times."""


class Entry:
    """`sites[k]` holds, for the k-th call of a step, one (output site, gradient site) pair a tensor that the call gave."""

    __slots__ = ("broken", "calls", "eval_step", "name", "ref", "seen", "sites", "step", "type", "watched")

    def __init__(self, name: str, cell: Any, forget: Callable[[Any], None]) -> None:
        self.name = name
        self.type = type(cell).__name__
        self.ref = weakref.ref(cell, forget)
        self.sites: list[list[tuple[int, int | None]]] = []
        self.step = -1
        self.calls = 0
        self.eval_step = -1
        self.watched = False
        self.seen = False
        self.broken = False
        """Observing it failed: it is left alone from then on."""

    @property
    def looked_at(self) -> bool:
        return self.step >= 0 or self.eval_step >= 0


def grow(
    session: Session, entry: Entry, call: int, tensors: Sequence[Any], source: SourceLine | None = None
) -> list[tuple[int, int | None]]:
    """Registers the sites of a call that is seen for the first time. `source` is its line, if it is not the one that runs."""
    if call >= MOST_CALLS or call > len(entry.sites):
        return []
    source = source or user_line()
    pairs: list[tuple[int, int | None]] = []
    entry.seen = True
    for k, tensor in enumerate(tensors):
        facts: dict[str, Any] = {
            "index": k if len(tensors) > 1 else None,
            "type": entry.type,
            "shape": shape_of(tensor),
            "dtype": dtype_name(tensor),
            "source": source,
        }
        out = session.site(entry.name, Role.OUT, Kind.MODULE, **facts)
        grad = session.site(entry.name, Role.GRAD, Kind.MODULE, **facts) if is_floating(tensor) else None
        entry.watched |= session.user_watched(session.sites[out])
        entry.watched |= grad is not None and session.user_watched(session.sites[grad])
        session.policy.has_watched |= entry.watched
        pairs.append((out, grad))
    if call == len(entry.sites):
        entry.sites.append(pairs)
    else:
        entry.sites[call] = pairs
    return pairs
