"""A watchpoint made ready: its sites, its expression there in stages, and where it is true now."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from tensonde.model.site import Kind, Role, Site
from tensonde.model.watchpoint import Watchpoint
from tensonde.watch.batch import Batch
from tensonde.watch.conditions import parse
from tensonde.watch.evaluate import Program, program, truth
from tensonde.watch.expression import Expression
from tensonde.watch.nodes import And, Field, History, Inside, Node, Seen, Spread, walk
from tensonde.watch.pattern import Pattern
from tensonde.watch.plan import Plan
from tensonde.watch.vocabulary import CONTEXT


def _cost(node: Node) -> int:
    """Order of evaluation: plain fields, `seen()`, `prev`, contextual fields, windows by their length."""
    cost = 0
    for part in walk(node):
        match part:
            case Seen():
                cost = max(cost, 1)
            case History("prev", _, _):
                cost = max(cost, 2)
            case Field(name) if name in CONTEXT:
                cost = max(cost, 3)
            case Spread():
                cost = max(cost, 3)
            case Inside():
                cost = max(cost, 4)
            case History(_, _, length):
                cost = max(cost, 4 + length)
    return cost


def _conjuncts(node: Node) -> list[Node]:
    return [part for item in node.items for part in _conjuncts(item)] if isinstance(node, And) else [node]


class Variant:
    """A watchpoint's expression as it applies at some of its sites. `active`: true there at the last look.

    The parts of an `and` are evaluated cheapest first, and each only on the rows where the ones before held.
    """

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        parts = sorted(_conjuncts(expression.tree), key=_cost)
        cheap = [part for part in parts if _cost(part) == 0]
        self.first: Program | None = truth(And(tuple(cheap)) if len(cheap) > 1 else cheap[0]) if cheap else None
        self.stages: list[Program] = [truth(part) for part in parts if _cost(part) > 0]
        self.presets = expression.presets
        self.histories = expression.histories
        self.terms = [(str(term), program(term)) for term in expression.terms]
        self.watched = np.zeros(64, dtype=bool)
        self.active = np.zeros(64, dtype=bool)
        self.any_active = False

    def watch(self, sites: list[int]) -> None:
        if max(sites) >= len(self.watched):
            size = max(max(sites) + 1, 2 * len(self.watched))
            for name in ("watched", "active"):
                grown = np.zeros(size, dtype=bool)
                grown[: len(getattr(self, name))] = getattr(self, name)
                setattr(self, name, grown)
        self.watched[sites] = True

    def _rows(self, plan: Plan) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The rows of watched sites, as a mask and as row numbers; the plan keeps them."""
        got = plan.watched.get(id(self))
        if got is None:
            inside = np.minimum(plan.sites, len(self.watched) - 1)
            mask = self.watched[inside] & (plan.sites < len(self.watched))
            got = plan.watched[id(self)] = (mask, np.flatnonzero(mask))
        return got

    def holds(self, batch: Batch) -> NDArray[np.bool_] | None:
        """Where the condition holds, one value a row; None if nowhere."""
        mask, rows = self._rows(batch.plan)
        if not len(rows):
            return None
        if self.first is not None:
            held = batch.held(self.first)
            if held is None:
                return None
            rows = np.flatnonzero(mask & held)
        for stage in self.stages:
            if not len(rows):
                return None
            got = stage(batch.only(rows))
            rows = rows[got if got.shape else np.broadcast_to(got, len(rows))]
        if not len(rows):
            return None
        held = np.zeros(batch.plan.size, dtype=bool)
        held[rows] = True
        return held

    def settle(self, held: NDArray[np.bool_] | None, plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows where it becomes true and those where it goes on being so; notes where it is true now."""
        none = np.empty(0, dtype=np.int64)
        if held is None:
            if self.any_active:
                self.active[plan.present[plan.present < len(self.active)]] = False
                self.any_active = bool(self.active.any())
            return none, none
        ordered = held[plan.order]
        before = np.empty_like(ordered)
        before[1:] = ordered[:-1]
        known = plan.present < len(self.active)
        before[plan.starts] = False
        before[plan.starts[known]] = self.active[plan.present[known]]
        self.active[plan.present[known]] = ordered[plan.ends[known]]
        self.any_active = bool(self.active.any())
        return plan.order[ordered & ~before], plan.order[ordered & before]


class Armed:
    def __init__(self, watchpoint: Watchpoint) -> None:
        self.watchpoint = watchpoint
        self.pattern = Pattern.parse(watchpoint.sites)
        self.expression = parse(watchpoint.condition)
        self.across = self.expression.across
        self.variants: dict[Node, Variant] = {}
        self._variant_of: dict[int, tuple[Variant, Expression]] = {}
        """By the id of the expression, which is kept for that: trees are slow to compare."""
        self.suppressed: dict[int, int] = {}
        self._any_name = self.pattern.any_name
        self._resolved: dict[Hashable, Expression | None] = {}

    def fitting(self, site: Site) -> Expression | None:
        """The expression for `site`; None if it is not watched."""
        if not self._any_name and not self.pattern.matches(site):
            return None
        facts = facts_of(site)
        if facts not in self._resolved:
            if len(self._resolved) > 10_000:
                self._resolved.clear()
            self._resolved[facts] = self.expression.at(site) if self.pattern.matches(site) else None
        return self._resolved[facts]

    def looks_up(self, site: Site) -> bool:
        """Whether the watchpoint reads `site` for the sake of another one (`update_ratio`, `fed`, `loss`)."""
        fields = self.expression.fields
        if site.kind is Kind.LOSS:
            return "loss" in fields
        if site.kind is Kind.MODULE:
            return "fed" in fields and site.role is Role.OUT
        return "update_ratio" in fields and site.kind is Kind.PARAMETER and site.role is Role.VALUE

    def watch(self, alike: list[Site]) -> tuple[Variant | None, list[Site]]:
        """Watches those of `alike`, which differ in their names only, that it is meant for. Returns them, and how."""
        members = alike if self._any_name else [site for site in alike if self.pattern.matches(site)]
        expression = self.fitting(members[0]) if members else None
        if expression is None:
            return None, []
        known = self._variant_of.get(id(expression))
        if known is None:
            variant = self.variants.get(expression.tree)
            if variant is None:
                variant = self.variants[expression.tree] = Variant(expression)
            known = self._variant_of[id(expression)] = (variant, expression)
        variant = known[0]
        variant.watch([site.id for site in members])
        return variant, members


def facts_of(site: Site) -> Hashable:
    """All that an expression looks at to fit a site."""
    return (site.kind, site.role, site.type, site.trainable, len(site.shape))
