"""What the user asked for, as a frozen value that travels to child processes in one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field

from sonde.errors import UsageError
from sonde.model.watchpoint import Action

ENVIRONMENT = "SONDE_OPTIONS"


@dataclass(frozen=True, slots=True)
class Options:
    """`budget` is the share of step time that Sonde may take; None digests everything at every step, 0 leaves only the sentinel."""

    run: str
    watches: tuple[tuple[str, str, Action], ...] = field(default_factory=tuple)
    on_hit: Action = "report"
    budget: float | None = 0.05
    steps: int | None = None
    recommended: bool = True
    debug: bool = False
    quiet: bool = False
    hub: str = ""
    """The URL of a hub, with its token."""

    def to_environment(self) -> dict[str, str]:
        return {ENVIRONMENT: json.dumps(asdict(self))}

    @staticmethod
    def from_environment() -> Options | None:
        text = os.environ.get(ENVIRONMENT)
        if not text:
            return None
        try:
            fields = json.loads(text)
            fields["watches"] = tuple(tuple(entry) for entry in fields["watches"])
            return Options(**fields)
        except (ValueError, KeyError, TypeError) as problem:
            raise UsageError(
                f"{ENVIRONMENT} holds {text[:80]!r}, which is not what `sonde run` writes ({problem}); unset it."
            ) from None


def parse_budget(text: str) -> float | None:
    """`5%`, `0.05`, or `off` (everything at every step)."""
    lowered = text.strip().lower()
    if lowered == "off":
        return None
    try:
        share = float(lowered[:-1]) / 100 if lowered.endswith("%") else float(lowered)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 10:
        raise UsageError(
            f"the budget {text!r} is not a share of the step time; give e.g. 5%, 0 (sentinel only) or off."
        )
    return share
