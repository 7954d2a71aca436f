"""A batch of rows as columns, with the history of each row's site: what the engine's expressions read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import of_one
from tensonde.watch.beside import Beside
from tensonde.watch.estimate import inside
from tensonde.watch.evaluate import Program
from tensonde.watch.memory import Memory
from tensonde.watch.plan import Plan
from tensonde.watch.vocabulary import DERIVED, STORED, Column
from tensonde.watch.window import reduce


class Batch:
    """All rows. `again`: the rows are the latest that the memory already holds, so its history is rewound. `beside`: the rows of all ranks."""

    def __init__(
        self,
        rows: NDArray[np.void],
        plan: Plan,
        memory: Memory,
        *,
        scaled: bool,
        again: bool = False,
        beside: Beside | None = None,
    ) -> None:
        self.rows, self.plan, self.memory, self.scaled, self.beside = rows, plan, memory, scaled, beside
        self.cache: dict[str, Column] = {}
        self.answers: dict[Program, NDArray[np.bool_] | None] = {}
        self.again = again
        self._base: NDArray[np.int64] | None = None

    @property
    def base(self) -> NDArray[np.int64]:
        """For each row, how often its site had been seen before this batch."""
        if self._base is None:
            self._base = self.memory.seen[self.plan.sites]
            if self.again:
                own = np.empty(self.plan.size, dtype=np.int64)
                own[self.plan.order] = np.repeat(self.plan.counts, self.plan.counts)
                self._base = np.maximum(self._base - own, 0)
        return self._base

    def field(self, name: str) -> Column:
        column = self.cache.get(name)
        if column is None:
            if name in STORED:
                column = self.rows[name].astype(np.float64)
            elif name in DERIVED:
                column = DERIVED[name][1](self.field)
            else:
                column = self._context(name)
            self.cache[name] = column
        return column

    def _context(self, name: str) -> Column:
        plan, memory = self.plan, self.memory
        if name == "scaled":
            return np.full(plan.size, float(self.scaled))
        if name == "differs":
            return self.beside.differs() if self.beside is not None else np.full(plan.size, np.nan)
        if name == "loss":
            at = np.where(memory.is_loss[plan.sites], np.arange(plan.size), -1)
            at = np.maximum.accumulate(at) if plan.size else at
            return np.where(at >= 0, of_one(self.field)[at], memory.loss)
        wanted = (memory.value_of if name == "update_ratio" else memory.output_of)[plan.sites]
        row = plan.latest_before(wanted)
        if name == "update_ratio":
            before = np.where(row >= 0, self.field("absmean")[row], memory.absmean[wanted])
            ratio = self.field("absmean") / (before + 1e-9)
            return np.where(wanted >= 0, ratio, np.nan)
        count = np.where(row >= 0, self.field("count")[row], memory.count[wanted])
        step = np.where(row >= 0, self.field("step")[row], memory.step[wanted])
        fed = np.where((wanted >= 0) & (step == self.field("step")), count, 0.0)
        return np.where(wanted >= -1, fed, np.nan)

    def held(self, test: Program) -> NDArray[np.bool_] | None:
        """The rows where `test` is true, None if nowhere; watchpoints share the answer."""
        if test not in self.answers:
            answer = test(View(self, None))
            self.answers[test] = answer if np.count_nonzero(answer) else None
        return self.answers[test]

    def only(self, rows: NDArray[np.int64]) -> View:
        return View(self, rows)


class View:
    """Some of a batch's rows; None is all of them."""

    def __init__(self, batch: Batch, rows: NDArray[np.int64] | None) -> None:
        self.batch, self.rows = batch, rows

    def field(self, name: str) -> Column:
        column = self.batch.field(name)
        return column if self.rows is None else column[self.rows]

    def _rows(self) -> NDArray[np.int64]:
        return np.arange(self.batch.plan.size) if self.rows is None else self.rows

    def history(self, function: str, field: str, length: int) -> Column:
        if function == "prev":
            return self._earlier(field, np.array([length]))[:, 0]
        return reduce(function, self._earlier(field, np.arange(length, 0, -1)))

    def _earlier(self, field: str, back: NDArray[np.int64]) -> Column:
        """For each row its observations `back` rows of its site before."""
        rows, plan, memory = self._rows(), self.batch.plan, self.batch.memory
        sites, ring = plan.sites[rows], memory.rings.get(field)
        within = plan.occurrence[rows][:, None] - back
        if ring is None:
            got = np.full(within.shape, np.nan)
        else:
            got = ring.read(sites, self.batch.base[rows][:, None] + within, memory.seen[sites])
        if not plan.unique:
            column = self.batch.field(field)[plan.order]
            here = column[np.maximum(plan.place[rows][:, None] - back, 0)]
            got = np.where(within >= 0, here, got)
        return got

    def seen(self) -> Column:
        rows = self._rows()
        return (self.batch.base[rows] + self.batch.plan.occurrence[rows]).astype(np.float64)

    def spread(self, field: str) -> Column:
        beside = self.batch.beside
        column = beside.spread(field) if beside is not None else np.full(self.batch.plan.size, np.nan)
        return column if self.rows is None else column[self.rows]

    def inside(self, low: float, high: float) -> Column:
        return inside(self.batch.rows if self.rows is None else self.batch.rows[self.rows], low, high)
