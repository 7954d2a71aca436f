"""The outcome of a comparison, and its JSON (docs/compare.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tensonde.model.site import SourceLine
from tensonde.program.lines import to_json

Judgement = Literal["data", "init", "forward", "backward", "optimizer", "none"]
EXIT = {"equivalent": 0, "divergent": 1, "incomparable": 2}


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that was chosen, and chosen otherwise in the other run."""

    what: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where inputs agree and outputs do not. `why` is the sentence for people."""

    judgement: Judgement
    site: str
    other_site: str
    step: int
    phase: str
    why: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    source: SourceLine | None = None
    other_source: SourceLine | None = None
    module: str = ""
    """Whose settings come first."""
    random: bool = False
    """It may be no more than other random numbers."""
    role: Literal["origin", "consequence"] = "origin"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`then`: what differs beside the first divergence, once that is removed."""

    verdict: Literal["equivalent", "divergent", "incomparable"]
    judgement: Judgement = "none"
    first: Divergence | None = None
    settings: tuple[Setting, ...] = ()
    losses: Mapping[str, Any] = field(default_factory=dict)
    unmatched_a: tuple[str, ...] = ()
    unmatched_b: tuple[str, ...] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    labels: tuple[str, str] = ("A", "B")
    then: Verdict | None = None
    cause: str = ""
    """What such a difference mostly comes from, where that is known."""

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]

    def document(self) -> dict[str, Any]:
        first = self.first
        found: dict[str, Any] = {
            "verdict": self.verdict,
            "judgement": self.judgement,
            "a": self.labels[0],
            "b": self.labels[1],
            "first": None if first is None else _first(first),
            "settings": [{"what": s.what, "a": _plain(s.a), "b": _plain(s.b)} for s in self.settings],
            "losses": _plain(dict(self.losses)),
            "unmatched": {"a": list(self.unmatched_a), "b": list(self.unmatched_b)},
            "coverage": _plain(dict(self.coverage)),
            "renamed": dict(self.renamed),
            "notes": list(self.notes),
            "cause": self.cause,
        }
        if self.then is not None:
            found["then"] = self.then.document()
        return found


def _first(first: Divergence) -> dict[str, Any]:
    return {
        "site": first.site,
        "other_site": first.other_site,
        "step": first.step,
        "phase": first.phase,
        "role": first.role,
        "why": first.why,
        "evidence": _plain(dict(first.evidence)),
        "source": to_json(first.source),
        "other_source": to_json(first.other_source),
    }


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
