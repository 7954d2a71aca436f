"""Loaders that the training has gone through, described when they are first iterated: many do not live to the end."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tensonde.adapters.torch.observers.batches import loader_facts
from tensonde.adapters.torch.observers.rewritten import Watched, own, watched
from tensonde.program import queries
from tensonde.program.lines import CodeLine, line_at, line_of

MOST = 16
MOST_INDICES = 64


class Loaders:
    """`steps` of a loader are the optimizer steps made while it was the last one that was iterated."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._known: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}
        self._current: dict[str, Any] | None = None
        self._fresh: tuple[dict[str, Any], weakref.ref[Any]] | None = None
        """A loader whose first batch is still to come, and its data set."""
        self._rewritten: dict[int, tuple[weakref.ref[Any], Watched | None]] = {}

    def iterated(self, loader: Any, place_of: Callable[[], CodeLine | None]) -> None:
        known = self._known.get(id(loader))
        if known is not None and known[0]() is loader:
            self._current = known[1]
        else:
            self._current = self._describe(loader)
            if self._current is None:
                return
            self._known[id(loader)] = (weakref.ref(loader), self._current)
        self._current["passes"] += 1
        if self._current["epochs"] is not None and len(self._current["epochs"]) < MOST:
            self._current["epochs"].append(loader.sampler.epoch)
        if not self._current["first"] and type(loader.dataset).__weakrefoffset__:
            self._fresh = self._current, weakref.ref(loader.dataset)
        if self._current["iterated"] is None:
            place = place_of()
            self._current["iterated"] = line_of(place)
            if place is not None and self._current["epochs"] is not None:
                number = queries.around_loop(place[0].co_filename, place[1])
                self._current["loop"] = line_at(place[0].co_filename, number) if number else None
        if not loader.num_workers:  # a worker writes into a copy of its own
            self._current["rewritten"] = self._look(loader.dataset)

    def given(self, dataset: Any, indices: list[int]) -> None:
        """A batch, which is of these samples."""
        if self._fresh is not None:
            entry, of = self._fresh
            self._fresh = None
            if of() is dataset:
                entry["first"] = indices[:MOST_INDICES]

    def _look(self, dataset: Any) -> dict[str, Any] | None:
        """At what the data set keeps, where its source says that it writes into it."""
        known = self._rewritten.get(id(dataset))
        if known is None or known[0]() is not dataset:
            if len(self._rewritten) >= MOST or type(dataset).__weakrefoffset__ == 0:  # a list, say
                return None
            known = self._rewritten[id(dataset)] = (weakref.ref(dataset), watched(dataset))
        if known[1] is None:
            return None
        known[1].look(getattr(own(dataset), known[1].attribute, None))
        return known[1].facts

    def ended(self) -> None:
        """The last pass is over."""
        for ref, found in self._rewritten.values():
            dataset = ref()
            if dataset is not None and found is not None:
                found.look(getattr(own(dataset), found.attribute, None))

    def _describe(self, loader: Any) -> dict[str, Any] | None:
        facts = {**loader_facts(loader), "passes": 0, "steps": 0, "iterated": None, "first": []}
        for entry in self.entries:  # made anew in every epoch
            if entry["made"] is not None and entry["made"] == facts["made"] and entry["dataset"] == facts["dataset"]:
                entry["made_anew"] = entry.get("made_anew", 0) + 1
                return entry
        if len(self.entries) >= MOST:
            return None
        self.entries.append(facts)
        return facts

    def stepped(self, steps: int = 1) -> None:
        if self._current is not None:
            self._current["steps"] += steps


LOADERS = Loaders()
