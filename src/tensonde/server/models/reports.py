"""What was noticed: hits, findings and events, and what they point to."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from tensonde.model.finding import Finding
from tensonde.server.models.common import Model
from tensonde.server.models.runs import Hit

__all__ = ["Event", "Events", "Excerpt", "Finding", "Hits", "Settings"]


class Hits(Model):
    hits: list[Hit]
    total: int


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
