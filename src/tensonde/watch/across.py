"""Conditions that compare ranks (`differs`, `spread`): rows of the same site, step and call are brought together and asked as one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import ROW
from tensonde.model.site import Site
from tensonde.model.watchpoint import Hit, Watchpoint
from tensonde.watch.beside import Beside
from tensonde.watch.conditions import parse
from tensonde.watch.engine import Engine

MOST_PENDING = 200_000
"""Rows that wait for those of other ranks. Ranks look at steps of their own choice, so some wait for ever."""

Key = tuple[int, int, int]


class AcrossRanks:
    """Ranks number their sites each in its own way, so they meet by address. One thread at a time."""

    def __init__(self, watchpoints: Iterable[Watchpoint]) -> None:
        chosen = [point for point in watchpoints if parse(point.condition).across]
        self.active = bool(chosen)
        self._engine = Engine(chosen)
        self._numbers: dict[str, int] = {}
        self._known: dict[int, dict[int, int]] = {}
        self._pending: dict[Key, dict[int, NDArray[np.void]]] = {}

    def sites(self, rank: int, sites: Iterable[Site]) -> list[int]:
        """Those of a rank that are asked for; call again when it has more. Shards of one tensor are not compared: they differ."""
        known = self._known.setdefault(rank, {})
        for site in sites:
            if site.id in known or (site.part is not None and site.part.sharded) or not self._engine.wanted(site):
                continue
            number = self._numbers.get(site.address)
            if number is None:
                number = self._numbers[site.address] = len(self._numbers)
                self._engine.add_site(replace(site, id=number))
            known[site.id] = number
        return list(known)

    def take(self, rank: int, rows: NDArray[np.void]) -> None:
        """New rows of a rank, in its order, of the sites that were asked for."""
        known, pending = self._known[rank], self._pending
        for row, site, step, call in zip(
            rows, rows["site"].tolist(), rows["step"].tolist(), rows["call"].tolist(), strict=True
        ):
            pending.setdefault((step, known[site], call), {}).setdefault(rank, row)
        while len(pending) > MOST_PENDING:
            del pending[next(iter(pending))]

    def hits(self, ranks: Collection[int]) -> list[Hit]:
        """Of all rows that every one of these ranks has given."""
        order = sorted(ranks)
        whole = [key for key, found in self._pending.items() if all(rank in found for rank in order)]
        if not whole:
            return []
        whole.sort(key=lambda key: key[0])
        rows = np.zeros((len(order), len(whole)), ROW)
        for k, key in enumerate(whole):
            found = self._pending.pop(key)
            for i, rank in enumerate(order):
                rows[i, k] = found[rank]
                rows[i, k]["site"] = key[1]
        return self._engine.evaluate(rows[0], Beside(rows))
