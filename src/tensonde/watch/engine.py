"""From digest rows to hits.

A condition that holds at a site is reported when it becomes true, and again only after it was false in
between; the rest is counted (`suppressed`). One thread at a time may use an engine; it keeps no rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from tensonde.errors import UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Site
from tensonde.model.watchpoint import Hit, Watchpoint
from tensonde.watch.armed import Armed, Variant, facts_of
from tensonde.watch.batch import Batch
from tensonde.watch.beside import Beside
from tensonde.watch.memory import Memory
from tensonde.watch.plan import Plan, Plans
from tensonde.watch.vocabulary import CONTEXT

MAX_HITS = 1000
"""The most hits taken from one batch, the earliest first; the rest are counted as suppressed."""
SPARE = 4
"""Observations kept beyond the longest history, so that `recheck` of the last rows sees what came before."""


class Engine:
    """Set `loss_scaling` while the training scales its loss (fp16 GradScaler): the field `scaled`."""

    def __init__(self, watchpoints: Iterable[Watchpoint] = (), *, rank: int = 0) -> None:
        self.rank = rank
        self.loss_scaling = False
        self._sites: dict[int, Site] = {}
        self._new: list[Site] = []
        """Added, and not yet watched: many come at once, and most of them are alike (see `_take_in`)."""
        self._armed: dict[int, Armed] = {}
        self._memory = Memory()
        self._plans = Plans()
        for watchpoint in watchpoints:
            self.add(watchpoint)

    @property
    def watchpoints(self) -> tuple[Watchpoint, ...]:
        return tuple(armed.watchpoint for armed in self._armed.values())

    @property
    def suppressed(self) -> dict[tuple[int, str], int]:
        """By watchpoint id and site address, how many matches were counted instead of reported."""
        return {
            (number, self._sites[site].address): count
            for number, armed in self._armed.items()
            for site, count in armed.suppressed.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes kept for histories."""
        return self._memory.nbytes

    def add(self, watchpoint: Watchpoint) -> None:
        """Takes effect on the next batch; raises SyntaxProblem, or UsageError if the id is taken."""
        if watchpoint.id in self._armed:
            raise UsageError(f"watchpoint {watchpoint.id} exists already; give the new one another id")
        self._armed[watchpoint.id] = self._arm(watchpoint)
        self._remember()

    def remove(self, id: int) -> None:
        if id not in self._armed:
            known = ", ".join(map(str, self._armed)) or "none"
            raise UsageError(f"there is no watchpoint {id}; there are: {known}")
        del self._armed[id]
        self._remember()

    def _arm(self, watchpoint: Watchpoint) -> Armed:
        armed = Armed(watchpoint)
        for alike in _alike(self._sites.values()):
            armed.watch(alike)
        return armed

    def _remember(self) -> None:
        """Keep the histories that the watchpoints need now, and no others."""
        self._take_in()
        needs: dict[str, tuple[int, set[int]]] = {}
        context: set[str] = set()
        for armed in self._armed.values():
            context |= armed.expression.fields & CONTEXT.keys()
            for variant in armed.variants.values():
                sites = set(np.flatnonzero(variant.watched).tolist())
                for history in variant.histories:
                    length, known = needs.get(history.field, (0, set()))
                    needs[history.field] = (max(length, history.length + SPARE), known | sites)
        self._memory.keep({f: (n, sorted(sites)) for f, (n, sites) in needs.items()}, frozenset(context))
        self._plans.clear()

    def add_site(self, site: Site) -> None:
        """Call once when a site is first seen, before its rows. Ids are small ints, given out in order."""
        if site.id in self._sites:
            raise UsageError(f"site {site.id} is {self._sites[site.id].address} already, not {site.address}")
        self._sites[site.id] = site
        self._memory.add_site(site)
        self._new.append(site)

    def seen(self, site: int) -> bool:
        """Whether rows of it were evaluated."""
        return bool(self._memory.seen[site])

    def _take_in(self) -> None:
        """The watchpoints watch the sites that were added since."""
        if not self._new:
            return
        groups, self._new = _alike(self._new), []
        lacking = False
        for armed in self._armed.values():
            for alike in groups:
                variant, members = armed.watch(alike)
                for history in variant.histories if variant else ():
                    ring = self._memory.rings.get(history.field)
                    if ring is None or ring.length < history.length:
                        lacking = True
                        continue
                    for site in members:
                        ring.admit(site.id)
        self._plans.clear()
        if lacking:
            self._remember()

    def wanted(self, site: Site) -> bool:
        """Whether a watchpoint watches `site` or looks it up for another one; it need not have been added."""
        return any(armed.fitting(site) is not None or armed.looks_up(site) for armed in self._armed.values())

    def watchers(self, site: Site, origin: str = "") -> list[Watchpoint]:
        """The watchpoints (of that origin, if it is given) that watch `site`; it need not have been added."""
        return [
            armed.watchpoint
            for armed in self._armed.values()
            if (not origin or armed.watchpoint.origin == origin) and armed.fitting(site) is not None
        ]

    def fields(self, id: int) -> frozenset[str]:
        """What a watchpoint looks at."""
        return frozenset(self._armed[id].expression.fields)

    def evaluate(self, rows: NDArray[np.void], beside: Beside | None = None) -> list[Hit]:
        """The new hits in `rows` (digests in execution order, of sites that were added), in that order. Conditions that compare ranks
        are asked where there is `beside`, the rows of all ranks, and no others are."""
        if not len(rows):
            return []
        self._take_in()
        plan = self._plan(rows)
        batch = Batch(rows, plan, self._memory, scaled=self.loss_scaling, beside=beside)
        with np.errstate(all="ignore"):
            hits = self._look(batch, self._armed.values())
            self._memory.advance(plan, batch.field)
        return hits

    def recheck(self, rows: NDArray[np.void], watchpoints: Iterable[Watchpoint] | None = None) -> list[Hit]:
        """The hits in `rows`, the latest of their sites, as if nothing had been reported; changes nothing.

        `watchpoints` need not belong to the engine; what history the engine keeps for others, they see too.
        """
        if not len(rows):
            return []
        self._take_in()
        chosen = self.watchpoints if watchpoints is None else watchpoints
        plan = Plan(np.ascontiguousarray(rows["site"]))
        self._check(plan)
        batch = Batch(rows, plan, self._memory, scaled=self.loss_scaling, again=True)
        with np.errstate(all="ignore"):
            return self._look(batch, [self._arm(watchpoint) for watchpoint in chosen])

    def _plan(self, rows: NDArray[np.void]) -> Plan:
        plan = self._plans.get(rows["site"])
        if not plan.watched:
            self._check(plan)
        return plan

    def _check(self, plan: Plan) -> None:
        for site in plan.present.tolist():
            if site not in self._sites:
                raise UsageError(f"site {site} has rows but was not added; call add_site first")

    def _look(self, batch: Batch, armed: Iterable[Armed]) -> list[Hit]:
        found: list[tuple[int, int, Armed, Variant]] = []
        for place, one in enumerate(armed):
            if one.across is not (batch.beside is not None):
                continue
            for variant in one.variants.values():
                new, still = variant.settle(variant.holds(batch), batch.plan)
                for row in still.tolist():
                    self._count(one, batch.plan, row)
                found += [(row, place, one, variant) for row in new.tolist()]
        if not found:
            return []
        found.sort(key=lambda hit: hit[:2])
        for row, _, one, _ in found[MAX_HITS:]:
            self._count(one, batch.plan, row)
        return [self._hit(batch, row, one, variant) for row, _, one, variant in found[:MAX_HITS]]

    def _count(self, armed: Armed, plan: Plan, row: int) -> None:
        site = int(plan.sites[row])
        armed.suppressed[site] = armed.suppressed.get(site, 0) + 1

    def _hit(self, batch: Batch, row: int, armed: Armed, variant: Variant) -> Hit:
        view, values = batch.only(np.array([row])), batch.rows[row]
        return Hit(
            watchpoint=armed.watchpoint.id,
            site=self._sites[int(values["site"])].address,
            moment=Moment(int(values["step"]), Phase(int(values["phase"])), int(values["call"])),
            condition=armed.watchpoint.condition,
            preset=dict(variant.presets),
            actual={text: float(term(view)[0]) for text, term in variant.terms},
            rank=self.rank,
        )


def _alike(sites: Iterable[Site]) -> list[list[Site]]:
    """Sites that differ in their names only, group by group."""
    groups: dict[Hashable, list[Site]] = {}
    for site in sites:
        groups.setdefault(facts_of(site), []).append(site)
    return list(groups.values())
