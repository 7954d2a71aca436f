"""What rules look at: one process's recording, read once, and the findings they make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensonde.diagnose.words import in_words_of
from tensonde.model.facts import Facts, ModuleFact, OptimizerFact, facts_in
from tensonde.model.finding import Finding, Severity
from tensonde.model.site import Site, SourceLine
from tensonde.model.trace import OpRecord, Trace
from tensonde.store.reader import Rank


@dataclass(frozen=True, slots=True)
class Header:
    """What a rule declares once for all its findings."""

    rule: str
    severity: Severity = "error"
    phase: str | None = None


class Case:
    """What one process recorded, read once for all rules."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.header = Header("")
        """Of the rule that runs now."""

    def finding(
        self,
        title: str,
        advice: str,
        *,
        at: OpRecord | None = None,
        step: int | None = 0,
        phase: str | None = None,
        site: str | None = None,
        op: str | None = None,
        source: SourceLine | None = None,
        evidence: Mapping[str, Any] | None = None,
        confidence: float = 1.0,
        severity: Severity | None = None,
        rule: str | None = None,
        caused_by: int | None = None,
    ) -> Finding:
        """A finding of the rule that runs: its name, severity and phase unless given, and the rank of this process.

        `at` is an op: it stands for `site` (the op's output), `op` and `source`. `step` is None where the finding belongs to
        no step. `rule` is for a rule that makes findings of several names.
        """
        if at is not None:
            site, op, source = f"{at.site}:out", at.op, at.source
        return Finding(
            rule=rule or self.header.rule,
            severity=severity or self.header.severity,
            title=in_words_of(self.framework, title),
            advice=in_words_of(self.framework, advice),
            step=step,
            phase=phase or self.header.phase,
            rank=self.rank.rank,
            site=site,
            op=op,
            source=source,
            evidence=evidence if evidence is not None else {},
            confidence=confidence,
            caused_by=caused_by,
        )

    @cached_property
    def framework(self) -> str:
        """The one that trained, in small letters and without its version; empty where it is not known."""
        given = self.rank.session.get("framework")
        return given.partition(" ")[0] if isinstance(given, str) else ""

    @property
    def facts(self) -> Facts:
        """As far as they can be understood."""
        return self._facts[0]

    @property
    def damage(self) -> list[Exception]:
        """Why some facts could not be understood."""
        return self._facts[1]

    @cached_property
    def _facts(self) -> tuple[Facts, list[Exception]]:
        return facts_in(self.rank.facts)

    def module(self, name: str | None) -> ModuleFact:
        """The module of this name; one without facts where it is not known."""
        return self.facts.modules.get(name or "") or ModuleFact()

    @property
    def stepping(self) -> list[OptimizerFact]:
        """Optimizers that step."""
        return [optimizer for optimizer in self.facts.optimizers if optimizer.steps]

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
