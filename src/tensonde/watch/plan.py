"""How the rows of a batch lie over the sites: worked out once for a sequence of sites; steps repeat it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Plan:
    """`order` sorts the rows by site and keeps their order within one; the rest says where a row stands.

    `occurrence` is how many rows of its site come before a row, `place` its position in sorted order,
    `starts` and `ends` the first and last position of each site in sorted order.
    """

    def __init__(self, sites: NDArray[np.int32]) -> None:
        self.sites = sites
        self.size = n = len(sites)
        self.order = np.argsort(sites, kind="stable")
        self.sorted_sites = sites[self.order]
        first = np.ones(n, dtype=bool)
        first[1:] = self.sorted_sites[1:] != self.sorted_sites[:-1]
        self.starts = np.flatnonzero(first)
        self.ends = np.append(self.starts[1:], n) - 1
        self.present = self.sorted_sites[self.starts]
        self.counts = self.ends - self.starts + 1
        self.unique = bool(first.all())
        self.place = np.empty(n, dtype=np.int64)
        self.place[self.order] = np.arange(n)
        self.occurrence = np.empty(n, dtype=np.int64)
        self.occurrence[self.order] = np.arange(n) - np.repeat(self.starts, self.counts)
        self.watched: dict[int, tuple[NDArray[np.bool_], NDArray[np.int64]]] = {}
        self.ring_rows: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def latest_before(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each row, the last earlier row of site `wanted` in the batch; -1 if there is none."""
        keys = self.sorted_sites.astype(np.int64) * self.size + self.order
        at = np.searchsorted(keys, wanted * self.size + np.arange(self.size)) - 1
        row = self.order[np.maximum(at, 0)]
        found = (at >= 0) & (self.sites[row] == wanted) & (wanted >= 0)
        return np.where(found, row, -1)


class Plans:
    """The last few plans, by their sequence of sites."""

    def __init__(self, limit: int = 16) -> None:
        self.limit, self.kept = limit, dict[bytes, Plan]()

    def get(self, sites: NDArray[np.int32]) -> Plan:
        own = np.ascontiguousarray(sites)
        key = own.tobytes()
        plan = self.kept.get(key)
        if plan is None:
            if len(self.kept) >= self.limit:
                del self.kept[next(iter(self.kept))]
            plan = self.kept[key] = Plan(own.copy())
        return plan

    def clear(self) -> None:
        self.kept.clear()
