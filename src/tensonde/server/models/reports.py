"""What was noticed: hits, findings and events, and what they point to."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from tensonde.model.finding import Finding
from tensonde.server.models.common import Model, Source
from tensonde.server.models.runs import Hit

__all__ = [
    "Event",
    "Events",
    "Excerpt",
    "Finding",
    "Hits",
    "Memory",
    "MemoryCourse",
    "MemoryPart",
    "MemoryPlace",
    "Question",
    "Settings",
]


class Hits(Model):
    hits: list[Hit]
    total: int


class Question(Model):
    """What an experiment asked of the training. `unknown`: it was not asked, or it is too early to tell; `answer` says which."""

    question: str
    state: Literal["ok", "problem", "unknown"]
    answer: str
    step: int
    source: Source | None = None
    module: str = ""
    evidence: dict[str, Any] = {}
    names: list[str] = []


class MemoryPart(Model):
    """What a module holds at the peak, of one use."""

    use: str
    bytes: int
    tensors: int
    module: str = ""
    line: Source | None = None


class MemoryPlace(Model):
    """The op that took memory last."""

    phase: str
    op: str
    module: str = ""
    line: Source | None = None


class MemoryCourse(Model):
    """Memory over one step. Lists have one entry per point; `place` counts in `places`, and `at` in the `length` times at which
    the step takes memory or gives it back."""

    step: int
    length: int
    at: list[int]
    peak: int
    places: list[MemoryPlace]
    place: list[int]
    uses: dict[str, list[int]]
    modules: dict[str, list[int]]


class Memory(Model):
    """What `tensonde check --memory` has seen. `names` has words for the uses."""

    device: str
    peak: int
    batch: int
    growth: int
    uses: dict[str, int]
    names: dict[str, str]
    lines: list[MemoryPart]
    course: MemoryCourse | None = None


class Event(Model):
    model_config = ConfigDict(extra="allow")
    ord: int
    kind: str
    time: str = ""


class Events(Model):
    events: list[Event]
    total: int


class Excerpt(Model):
    """Lines of a source file, from `first` on."""

    file: str
    first: int
    lines: list[str]
    line: int


class Settings(Model):
    optimizers: list[dict[str, Any]]
    modules: list[dict[str, Any]]
