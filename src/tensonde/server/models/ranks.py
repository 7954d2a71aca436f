"""The ranks of a run side by side."""

from __future__ import annotations

from dataclasses import dataclass

from tensonde.server.models.common import Model, Number
from tensonde.server.models.reports import Finding
from tensonde.server.models.runs import InCollective, Stop


class Curve(Model):
    step: list[int]
    value: list[Number]


class RankRow(Model):
    """`waited`: seconds that it was in collectives because another rank came later; `waited_for`: that others were in them because it did.
    `inside` is the collective that it is in now."""

    name: str
    rank: int
    state: str
    step: int
    host: str | None = None
    steps_per_second: float | None = None
    memory: int | None = None
    loss: Curve
    waited: float | None = None
    waited_for: float | None = None
    inside: InCollective | None = None
    stop: Stop | None = None


class RankHeat(Model):
    """A field of a site: a row per rank in the order of `ranks`, a column per step; None where a rank has no digest of that step.
    `spread` is None where fewer than two ranks have one, or none has a number."""

    address: str
    field: str
    step: list[int]
    values: list[list[Number | None]]
    min: list[Number]
    max: list[Number]
    spread: list[Number | None]
    thinned: bool = False


class Waiting(Model):
    """Of the `calls` that several ranks have recorded, in `steps`: who came last, most of the time."""

    calls: int
    steps: list[int] | None = None
    slowest: str | None = None
    sentence: str | None = None


@dataclass(frozen=True, slots=True)
class SharedFinding(Finding):
    ranks: tuple[int, ...] = ()


class Ranks(Model):
    ranks: list[RankRow]
    site: RankHeat | None = None
    waiting: Waiting
    findings: list[SharedFinding]
