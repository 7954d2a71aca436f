"""What the engine remembers between batches: rings, how often each site was seen, and the latest rows that
`update_ratio`, `fed` and `loss` look up. Its size depends on the sites and on the longest history, not on how
many watchpoints there are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import of_one
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.plan import Plan
from tensonde.watch.ring import Ring
from tensonde.watch.vocabulary import Column, Get


class Memory:
    def __init__(self) -> None:
        self.rings: dict[str, Ring] = {}
        self.seen = np.zeros(64, dtype=np.int64)
        self.size = 0
        self._first: dict[Role, dict[str, int]] = {Role.VALUE: {}, Role.OUT: {}}
        """The site of each name, of the two roles that are looked up."""
        self.value_of = np.full(64, -1, dtype=np.int64)
        self.output_of = np.full(64, -2, dtype=np.int64)  # -2: not a parameter, -1: none seen
        self.is_loss = np.zeros(64, dtype=bool)
        self.absmean: Column = np.full(64, np.nan)
        self.count: Column = np.zeros(64)
        self.step: Column = np.full(64, -1.0)
        self.loss = np.nan
        self.needed = frozenset[str]()
        self._waiting: dict[tuple[str, Role], list[int]] = {}

    def add_site(self, site: Site) -> None:
        if site.id >= len(self.seen):
            self._grow(max(site.id + 1, 2 * len(self.seen)))
        self.size = max(self.size, site.id + 1)
        self.is_loss[site.id] = site.kind is Kind.LOSS and site.role in (Role.OUT, Role.VALUE)
        if site.kind is Kind.PARAMETER and site.role is Role.UPDATE:
            self._link(site.id, self.value_of, (site.name, Role.VALUE))
        if site.kind is Kind.PARAMETER:
            self._link(site.id, self.output_of, (site.name.rpartition(".")[0], Role.OUT))
        first = self._first.get(site.role)
        if first is not None and site.index in (None, 0) and site.name not in first:
            first[site.name] = site.id
            for waiting in self._waiting.pop((site.name, site.role), ()):
                target = self.value_of if site.role is Role.VALUE else self.output_of
                target[waiting] = site.id

    def _link(self, site: int, target: NDArray[np.int64], key: tuple[str, Role]) -> None:
        found = self._first[key[1]].get(key[0])
        target[site] = -1 if found is None else found
        if found is None:
            self._waiting.setdefault(key, []).append(site)

    def _grow(self, size: int) -> None:
        for name, blank in (
            ("seen", 0), ("value_of", -1), ("output_of", -2), ("is_loss", False),
            ("absmean", np.nan), ("count", 0), ("step", -1),
        ):  # fmt: skip
            old = getattr(self, name)
            new = np.full(size, blank, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        for ring in self.rings.values():
            ring.reserve(size)

    def keep(self, needs: Mapping[str, tuple[int, list[int]]], context: frozenset[str]) -> None:
        """Keep exactly these histories (for each field its length and sites) and contextual fields."""
        self.rings = {
            field: self.rings.get(field, Ring(length, len(self.seen))).relaid(length, sites, self.seen)
            for field, (length, sites) in needs.items()
        }
        self.needed = context

    def advance(self, plan: Plan, field: Get) -> None:
        """Take in a batch after it was evaluated."""
        numbers = (self.seen[plan.sites] + plan.occurrence) if self.rings else None
        for name, ring in self.rings.items():
            cached = plan.ring_rows.get(name)
            if cached is None:
                slots = ring.slots[plan.sorted_sites]
                kept = slots >= 0
                cached = plan.ring_rows[name] = (plan.order[kept], slots[kept])
            rows, slots = cached
            if len(rows) and numbers is not None:
                ring.write(slots, numbers[rows], field(name)[rows])
        self.seen[plan.present] += plan.counts
        last = plan.order[plan.ends] if self.needed else None
        if "update_ratio" in self.needed:
            self.absmean[plan.present] = field("absmean")[last]
        if "fed" in self.needed:
            self.count[plan.present] = field("count")[last]
            self.step[plan.present] = field("step")[last]
        if "loss" in self.needed:
            losses = np.flatnonzero(self.is_loss[plan.sites])
            if len(losses):
                self.loss = float(of_one(field)[losses[-1]])

    @property
    def nbytes(self) -> int:
        return sum(ring.nbytes for ring in self.rings.values()) + sum(
            value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray)
        )
