"""What was noticed: hits, findings and events, and what they point to."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from tensonde.model.finding import Finding
from tensonde.server.models.common import Model, Source
from tensonde.server.models.runs import Hit

__all__ = ["Event", "Events", "Excerpt", "Finding", "Hits", "Question", "Settings"]


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
