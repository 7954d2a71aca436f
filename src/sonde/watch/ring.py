"""The last observations of one field at the sites that need them; nothing is kept for other sites.

Observation number q of a site lies in column q % length of its slot; what was not observed is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sonde.watch.vocabulary import Column


class Ring:
    def __init__(self, length: int) -> None:
        self.length = length
        self.slots = np.full(64, -1, dtype=np.int64)
        self.values: Column = np.full((4, length), np.nan)
        self.used = 0

    def admit(self, site: int) -> None:
        """Keep observations of `site` from now on."""
        if site >= len(self.slots):
            grown = np.full(max(site + 1, 2 * len(self.slots)), -1, dtype=np.int64)
            grown[: len(self.slots)] = self.slots
            self.slots = grown
        if self.slots[site] >= 0:
            return
        if self.used == len(self.values):
            self.values = np.concatenate([self.values, np.full_like(self.values, np.nan)])
        self.slots[site] = self.used
        self.used += 1

    def slots_of(self, sites: NDArray[np.integer]) -> NDArray[np.int64]:
        inside = np.minimum(sites, len(self.slots) - 1)
        return np.where(sites < len(self.slots), self.slots[inside], -1)

    def read(
        self, sites: NDArray[np.integer], numbers: NDArray[np.int64], newest: NDArray[np.int64]
    ) -> Column:
        """Observations `numbers` (a row of them for each of `sites`, all below `newest`); NaN where not kept."""
        slots = self.slots_of(sites)
        got = self.values[slots[:, None], numbers % self.length]
        got[(numbers < newest[:, None] - self.length) | (slots < 0)[:, None]] = np.nan
        return got

    def write(self, slots: NDArray[np.int64], numbers: NDArray[np.int64], values: Column) -> None:
        self.values[slots, numbers % self.length] = values

    def relaid(self, length: int, sites: Iterable[int], seen: NDArray[np.int64]) -> Ring:
        """The same observations in a ring of another length or for other sites."""
        new = Ring(length)
        kept = min(self.length, length)
        for site in sites:
            new.admit(site)
            if site < len(self.slots) and self.slots[site] >= 0:
                numbers = np.arange(max(seen[site] - kept, 0), seen[site])
                old_row, new_row = self.slots[site], new.slots[site]
                new.values[new_row, numbers % length] = self.values[old_row, numbers % self.length]
        return new

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.slots.nbytes
