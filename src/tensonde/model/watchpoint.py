"""The user's rule and one match of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tensonde.model.moment import Moment

Action = Literal["report", "stop", "pause"]


@dataclass(frozen=True, slots=True)
class Watchpoint:
    """`sites` is a site pattern and `condition` a condition, both in the watch language, both already checked.

    `action`: report (note it and go on), stop (end the training cleanly), pause (open the debugger).
    `origin`: "user", or "recommended" for the set that is on by default.
    """

    id: int
    sites: str
    condition: str
    action: Action = "report"
    origin: Literal["user", "recommended"] = "user"

    def __str__(self) -> str:
        return f"{self.sites} {self.condition}"


@dataclass(frozen=True, slots=True)
class Hit:
    """One match. `preset` holds the thresholds of the condition, `actual` the digest fields it looked at."""

    watchpoint: int
    site: str
    moment: Moment
    condition: str
    preset: Mapping[str, float] = field(default_factory=dict)
    actual: Mapping[str, float] = field(default_factory=dict)
    rank: int = 0
