"""The user's rule and one match of it."""

from __future__ import annotations

import operator
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


_COMPARISONS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


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

    def met(self) -> tuple[dict[str, float], dict[str, float]]:
        """Preset and actual without comparisons that do not hold: a condition may join several by "or". All of them where none holds."""
        holding = {words: limit for words, limit in self.preset.items() if self._holds(words, limit)} or dict(
            self.preset
        )
        shown = {_field(words) for words in holding}
        left = {_field(words) for words in self.preset} - shown
        return holding, {name: value for name, value in self.actual.items() if name not in left}

    def _holds(self, words: str, limit: float) -> bool:
        compare, seen = _COMPARISONS.get(words.rpartition(" ")[2]), self.actual.get(_field(words))
        return compare is None or seen is None or bool(compare(seen, limit))


def _field(words: str) -> str:
    """Of a preset's words, as `nan >`."""
    return words.rpartition(" ")[0]
