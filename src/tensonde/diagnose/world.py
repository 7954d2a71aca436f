"""The ranks of one training, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tensonde.diagnose.case import Case, Header
from tensonde.digest import agreement
from tensonde.digest.agreement import EXACT, SUMS, Digest
from tensonde.model.facts import ReplicaFact
from tensonde.model.site import Kind, Role, SourceLine
from tensonde.model.trace import WeightRecord
from tensonde.store.standing import Standing, members, standings_of

UNFINISHED = "Expected to have finished reduction in the prior iteration"
"""In what DistributedDataParallel raises when gradients of the step before are missing."""


def world_of(cases: list[Case]) -> World | None:
    """The ranks of a training; None where there is only one, or the processes do not belong together. The process that
    started the ranks is none."""
    own = members([case.rank for case in cases])
    ranks = {case.rank.rank: case for case in reversed(cases) if case.rank in own}
    if len(ranks) < 2 or {rank.session.get("world_size") or 1 for rank in own} & {1}:
        return None
    return World([ranks[rank] for rank in sorted(ranks)], [case for case in cases if case.rank not in own])


class World:
    """Cases of different ranks, by rank."""

    def __init__(self, cases: list[Case], launchers: list[Case] | None = None) -> None:
        self.cases = cases
        self.launchers = launchers or []
        """Processes that started the ranks."""
        self.size = int(cases[0].rank.session.get("world_size") or len(cases))
        """How many ranks the training has; some may have recorded nothing."""

    @property
    def header(self) -> Header:
        """Of the rule that runs now."""
        return self.cases[0].header

    @header.setter
    def header(self, header: Header) -> None:
        for case in self.cases:
            case.header = header

    @property
    def first(self) -> Case:
        return self.cases[0]

    @cached_property
    def standings(self) -> list[Standing]:
        """By rank."""
        found = standings_of([case.rank for case in (*self.cases, *self.launchers)])
        return sorted(found, key=lambda one: one.rank)

    @cached_property
    def weights(self) -> dict[str, list[WeightRecord]]:
        """Parameters through the first step, on each rank, where every rank has traced them under the same name and shape."""
        traced = [{record.name: record for record in case.first.weights} if case.first else {} for case in self.cases]
        names = [name for name in traced[0] if all(name in one for one in traced)]
        found = {name: [one[name] for one in traced] for name in names}
        return {name: records for name, records in found.items() if len({record.shape for record in records}) == 1}

    @cached_property
    def replicas(self) -> list[ReplicaFact]:
        """What DistributedDataParallel keeps equal on all ranks of this world."""
        return [replica for replica in self.first.facts.replicas if replica.ranks == self.size]

    @cached_property
    def reduced(self) -> frozenset[str]:
        """Parameters whose gradients, or copies of these, the program reduces over all ranks itself. A program that averages a parameter may
        average what its optimizer keeps as well, which looks like a copy of the first gradient."""
        return frozenset(
            name
            for collective in self.first.facts.collectives
            if collective.op == "all_reduce" and collective.group_size == self.size
            for name in (*collective.gradients, *(set(collective.copies) - self.averaged))
        )

    @cached_property
    def exchanging(self) -> bool:
        """In every step, between the backward pass and the optimizer's step, the program adds something up over all ranks that may be gradients, in
        whatever form. What is only gathered may as well be for a log."""
        return any(
            one.before_step
            and not one.scalar
            and one.group_size == self.size
            and one.first_step == 0
            and one.steps >= self.first.steps - 1
            and one.op.startswith(("all_reduce", "reduce_scatter"))
            for one in self.first.facts.collectives
        )

    @cached_property
    def averaged(self) -> frozenset[str]:
        """Parameters that the program averages over ranks itself."""
        return frozenset(
            name
            for case in self.cases
            for one in case.facts.collectives
            if one.op == "all_reduce"
            for name in one.parameters
        )

    @cached_property
    def together(self) -> bool:
        """The ranks compute one model together: its forward or its backward communicates, on neither parameters nor their gradients (tensor
        and sequence parallel). The gathers of sharded parameters do not count."""
        gathers = ("all_gather_into_tensor", "reduce_scatter_tensor") if self.sharded else ()
        return any(
            one.inside and not one.gradients and not one.parameters and one.op not in gathers
            for one in self.first.facts.collectives
            if one.group_size == self.size
            and one.op.startswith(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))
        )

    @cached_property
    def sent(self) -> frozenset[str]:
        """Parameters that one rank has sent to all before the first step, and that the program does not average itself later: the ranks
        share them."""
        each = [set(case.facts.beginning.sent) for case in self.cases]
        return frozenset(set.intersection(*each) - self.averaged)

    @cached_property
    def sharded(self) -> frozenset[str]:
        """Parameters of which each rank holds a part (FSDP2, DTensor)."""
        return frozenset(
            name
            for name, fact in self.first.facts.parameters.items()
            if fact.placement.startswith(("S(", "Shard")) or ", S(" in fact.placement
        )

    def only_some_load(self, what: str) -> SourceLine | None:
        """The line at which some ranks load a state, `weights` or `optimizer`, more often than others."""
        each = [
            {one.line: one.count for one in case.facts.beginning.loads if one.what == what and one.line is not None}
            for case in self.cases
        ]
        lines = set[SourceLine]().union(*each)
        apart = [line for line in lines if len({counts.get(line, 0) for counts in each}) > 1]
        return min(apart, key=lambda line: line.line) if apart else None

    def all_load(self, step: int) -> SourceLine | None:
        """The line at which every rank loads weights in this step, and in no earlier one of the training."""
        each = [
            {one.line for one in case.facts.beginning.loads if one.what == "weights" and step in one.steps}
            for case in self.cases
        ]
        lines = [line for line in set.intersection(*each) if line is not None]
        return max(lines, key=lambda line: line.line, default=None)

    @cached_property
    def declared(self) -> frozenset[str]:
        """Parameters that are declared to be the same on all ranks (DTensor with `Replicate()`)."""
        placements = {name: fact.placement for name, fact in self.first.facts.parameters.items()}
        return frozenset(name for name, said in placements.items() if said and set(said.split(", ")) == {"R"})

    @cached_property
    def seeded_apart(self) -> SourceLine | None:
        """The first line at which the ranks seed torch's generators with different numbers."""
        tables = [{one.line: one.seed for one in case.facts.beginning.seeds} for case in self.cases]
        found = (line for line in tables[0] if len({table.get(line) for table in tables}) > 1)
        return next((line for line in found if all(line in table for table in tables)), None)

    @cached_property
    def same_inputs(self) -> bool:
        """Every root gets the same input on all ranks, in all steps that all of them looked at."""
        roots = set(self.first.facts.roots)
        addresses = [
            address
            for address, site in self.first.sites.items()
            if site.kind is Kind.MODULE and site.role is Role.IN and site.name in roots
        ]
        steps = [rows for address in addresses for _, rows in self.common(address)]
        return bool(steps) and all(same_in_step(rows) for rows in steps)

    @cached_property
    def same_losses(self) -> bool:
        """All ranks have the same loss in the first step, of the same input."""
        rows = next((rows for _, rows in self.common("loss:value")), None)
        return rows is not None and same_in_step(rows) and self.same_inputs

    def common(self, address: str) -> Iterator[tuple[int, list[tuple[Digest, ...]]]]:
        """The digests of a site in the steps that all ranks have looked at, in order: for each rank, those of one step."""
        tables: list[dict[int, list[Digest]]] = []
        for case in self.cases:
            tables.append({})
            for row in case.digests(address, ("step", *EXACT, *SUMS)):
                tables[-1].setdefault(row["step"], []).append(row)
        for step in sorted(set.intersection(*map(set, tables))):
            yield step, [tuple(table[step]) for table in tables]


def same(digests: list[Digest]) -> bool:
    """Whether the tensors behind these digests are equal, as far as a digest can tell. Not where one was not taken."""
    one = digests[0]
    return bool(one) and all(other and agreement.same(one, other) for other in digests[1:])


def differ(digests: list[Digest]) -> bool:
    """Whether the tensors behind these digests are known to differ."""
    return all(digests) and not same(digests)


def same_in_step(rows: list[tuple[Digest, ...]]) -> bool:
    """The same for all digests of one step, in their order."""
    return len({len(own) for own in rows}) == 1 and all(same(list(column)) for column in zip(*rows, strict=True))
