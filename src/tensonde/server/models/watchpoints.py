"""Watchpoints, breakpoints, and the conditions that they may have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensonde.server.models.common import Model
from tensonde.server.models.runs import Hit

Action = Literal["report", "stop", "pause"]


class NewWatchpoint(Model):
    sites: str = Field(max_length=500)
    condition: str = Field(max_length=2000)
    action: Action = "report"


class ChangedWatchpoint(Model):
    sites: str | None = Field(default=None, max_length=500)
    condition: str | None = Field(default=None, max_length=2000)
    action: Action | None = None
    enabled: bool | None = None


class Watchpoint(Model):
    """`matches` counts the sites it watches, `hits` what it has reported."""

    id: int
    sites: str
    condition: str
    action: Action
    origin: str
    enabled: bool = True
    hits: int = 0
    matches: int = 0


class Recheck(Model):
    """A condition on sites, or the number of a watchpoint; nothing: all watchpoints."""

    sites: str | None = Field(default=None, max_length=500)
    condition: str | None = Field(default=None, max_length=2000)
    id: int | None = None


class Rechecked(Model):
    """`unknown`: digests that lack a field that was asked for, as compiled graphs compute a few only."""

    hits: list[Hit]
    checked: int
    unknown: int


class MatchRequest(Model):
    pattern: str = Field(max_length=2000)


class Match(Model):
    count: int
    sites: list[str]


class Parameter(Model):
    name: str
    default: float | None = None
    meaning: str
    choices: list[str] = []


class Condition(Model):
    name: str
    parameters: list[Parameter]
    fits: list[str]
    help: str
    example: str


class FieldMeaning(Model):
    name: str
    meaning: str


class Conditions(Model):
    conditions: list[Condition]
    fields: list[FieldMeaning]


class NewBreakpoint(Model):
    """At sites (a pattern), or at a line of a file."""

    sites: str = Field(default="", max_length=500)
    file: str = Field(default="", max_length=4096)
    line: int = 0
    condition: str = Field(default="", max_length=2000)
    once: bool = False


class Breakpoint(Model):
    id: int
    sites: str = ""
    file: str = ""
    line: int = 0
    condition: str = ""
    once: bool = False
    hit_count: int = 0
