"""What a rule is: a name, its reasoning, and a function from what a process recorded to findings.

A rule looks at facts and digests only, never at names or scripts. It says what it saw (`evidence`), how sure it is
(`confidence`: 0.9 and more only where the facts leave no other reading) and what to do (`advice`). It is silent when in doubt:
a false alarm on a healthy training is as bad as a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensonde.model.finding import Finding
from tensonde.model.site import Site
from tensonde.model.trace import OpRecord, Trace
from tensonde.store.reader import Rank


class Case:
    """What one process recorded, read once for all rules."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    @cached_property
    def facts(self) -> dict[str, Any]:
        return self.rank.facts

    @cached_property
    def traces(self) -> list[Trace]:
        return self.rank.traces

    @property
    def first(self) -> Trace | None:
        """The trace of the first step."""
        return next((trace for trace in self.traces if trace.reason == "first"), None)

    @property
    def stages(self) -> list[Trace]:
        """The trace of the first step, and those of whole steps of later stages."""
        return [trace for trace in self.traces if trace.reason in ("first", "stage")]

    def trained_ops(self) -> Iterator[tuple[Trace, OpRecord]]:
        """Ops of the first step, and those of later stages that gradients go through (evaluations may lie between)."""
        for trace in self.stages:
            for op in trace.ops:
                if trace.reason == "first" or any(fact.requires_grad for fact in op.inputs):
                    yield trace, op

    @cached_property
    def sites(self) -> dict[str, Site]:
        """By address."""
        return {site.address: site for site in self.rank.sites.values()}

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        return self.rank.events

    @cached_property
    def steps(self) -> int:
        given = self.rank.session.get("steps")
        return given if isinstance(given, int) else 0

    def series(self, name: str) -> list[tuple[int, float]]:
        """A scalar over steps: loss, lr/0, step_seconds."""
        table = self.rank.scalars(name)
        return list(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))

    def digests(
        self, address: str, columns: Iterable[str] = ("step", "absmean", "norm", "absmax")
    ) -> list[dict[str, Any]]:
        """The digests of one site, in order."""
        site = self.sites.get(address)
        if site is None:
            return []
        rows: list[dict[str, Any]] = self.rank.digests(sites=[site.id], columns=list(columns)).to_pylist()
        return rows


Check = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` is what findings carry in `rule`; the docstring of `check` is its reasoning, and its entry in the rules page."""

    name: str
    check: Check

    @property
    def reasoning(self) -> str:
        return (self.check.__doc__ or "").strip()


RULES: list[Rule] = []


def rule(name: str) -> Callable[[Check], Check]:
    """Registers a rule: `@rule("parameter-not-in-optimizer")` over a function of a case."""

    def register(check: Check) -> Check:
        if any(known.name == name for known in RULES):
            raise ValueError(f"there are two rules named {name}")
        RULES.append(Rule(name, check))
        return check

    return register
