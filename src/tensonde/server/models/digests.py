"""Sites and what was measured there over the steps, as columns."""

from __future__ import annotations

from tensonde.server.models.common import Health, Model, Number, Source


class Site(Model):
    id: int
    address: str
    name: str
    role: str
    kind: str
    index: int | None = None
    type: str = ""
    trainable: bool | None = None
    shape: list[int] = []
    dtype: str = ""
    device: str = ""
    source: Source | None = None


class Status(Model):
    """The latest digest of each site at or before `step`; `seen` is when each was made."""

    step: int
    sites: list[int]
    value: list[Number | None]
    status: list[Health]
    seen: list[int] = []


class Digests(Model):
    site: str
    step: list[int]
    call: list[int]
    phase: list[str]
    fields: dict[str, list[Number | None]]
    thinned: bool


class Latest(Model):
    address: str
    step: int
    call: int
    phase: str
    digest: dict[str, Number | None]


class Histograms(Model):
    """Magnitudes over time: `edges` has one number more than there are counts in a row."""

    site: str
    step: list[int]
    edges: list[Number]
    counts: list[list[int]]


class ScalarNames(Model):
    names: list[str]


class Scalars(Model):
    name: str
    step: list[int]
    value: list[Number]
    thinned: bool = False
