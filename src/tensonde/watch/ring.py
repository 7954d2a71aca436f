"""The last observations of one field at the sites that need them; nothing is kept for other sites.

Observation number q of a site lies in column q % length of its slot; what was not observed is NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensonde.watch.vocabulary import Column


class Ring:
    def __init__(self, length: int, sites: int) -> None:
        self.length = length
        self.slots = np.full(sites, -1, dtype=np.int64)
        self.values: Column = np.full((4, length), np.nan)
        self.used = 0

    def reserve(self, sites: int) -> None:
        """Make room for site ids below `sites`."""
        self.slots = np.append(self.slots, np.full(sites - len(self.slots), -1, dtype=np.int64))

    def admit(self, site: int) -> None:
        """Keep observations of `site` from now on."""
        if self.slots[site] >= 0:
            return
        if self.used == len(self.values):
            self.values = np.concatenate([self.values, np.full_like(self.values, np.nan)])
        self.slots[site] = self.used
        self.used += 1

    def read(self, sites: NDArray[np.integer], numbers: NDArray[np.int64], newest: NDArray[np.int64]) -> Column:
        """Observations `numbers` (a row for each of `sites`, all below `newest`); NaN where not kept."""
        slots = self.slots[sites]
        got: Column = self.values[slots[:, None], numbers % self.length]
        got[(numbers < newest[:, None] - self.length) | (slots < 0)[:, None]] = np.nan
        return got

    def write(self, slots: NDArray[np.int64], numbers: NDArray[np.int64], values: Column) -> None:
        self.values[slots, numbers % self.length] = values

    def relaid(self, length: int, sites: list[int], seen: NDArray[np.int64]) -> Ring:
        """The same observations in a ring of another length or for other sites; itself if nothing differs."""
        if length == self.length and len(sites) == self.used and (self.slots[sites] >= 0).all():
            return self
        new = Ring(length, len(seen))
        for site in sites:
            new.admit(site)
        common = np.array([site for site in sites if self.slots[site] >= 0], dtype=np.int64)
        numbers = seen[common][:, None] - np.arange(min(self.length, length), 0, -1)
        values = self.values[self.slots[common][:, None], numbers % self.length]
        new.values[new.slots[common][:, None], numbers % length] = np.where(numbers >= 0, values, np.nan)
        return new

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.slots.nbytes
