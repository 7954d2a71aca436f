"""Where the number comes from that is to be made small or large.

In this order: what the script reports (`tensonde.report`), a pattern found in what it prints, a scalar of the recording
(`loss` is what `backward` started from). All three can be read while the script still runs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from tensonde.errors import RecordingError, UsageError
from tensonde.model import reported
from tensonde.store.reader import Recording


@dataclass(frozen=True, slots=True)
class Metric:
    """`reduce`: last, min, max, or mean:N over the last N values."""

    name: str = "loss"
    reduce: str = "mean:10"
    pattern: str = ""
    direction: str = "minimize"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"last|min|max|mean:[1-9]\d*", self.reduce):
            raise UsageError(f"the values are to be reduced by {self.reduce!r}; it may be last, min, max or mean:N.")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as problem:
            raise UsageError(f"--metric-from {self.pattern!r} is no regular expression: {problem}.") from None
        if self.pattern and groups < 1:
            raise UsageError(
                f"--metric-from {self.pattern!r} has no group for the number; write e.g. 'accuracy: ([0-9.]+)'."
            )

    def values(self, folder: Path) -> list[tuple[int, float]]:
        """Those of a trial so far, with their steps."""
        found = reported.read(folder / "reports.jsonl")
        mine = [(k if r.step is None else r.step, r.value) for k, r in enumerate(found) if r.name == self.name]
        if mine:
            return mine
        if self.pattern:
            return self._printed(folder / "output.txt")
        try:
            ranks = Recording.open(folder / "run").ranks
        except RecordingError:
            return []
        if not ranks:
            return []
        table = ranks[0].scalars(self.name)
        return list(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))

    def final(self, folder: Path) -> float | None:
        """The trial's one number; None where there is none."""
        returned = [r.value for r in reported.read(folder / "reports.jsonl") if r.name == reported.RETURNED]
        if returned:
            return returned[-1]
        return self.reduced([value for _, value in self.values(folder)])

    def reduced(self, values: list[float]) -> float | None:
        if not values:
            return None
        if self.reduce == "last":
            return values[-1]
        if self.reduce in ("min", "max"):
            finite = [value for value in values if math.isfinite(value)]
            return (min if self.reduce == "min" else max)(finite) if finite else math.nan
        last = values[-int(self.reduce.partition(":")[2]) :]
        return sum(last) / len(last)

    def _printed(self, path: Path) -> list[tuple[int, float]]:
        try:
            text = path.read_text(errors="replace")
        except FileNotFoundError:
            return []
        values = []
        for match in re.finditer(self.pattern, text):
            try:
                values.append(float(match.group(1)))
            except (TypeError, ValueError):
                continue
        return list(enumerate(values))


def worth_telling(step: int) -> bool:
    """Steps with at most two digits that count (1 … 99, 100, 110, … 990, 1000, 1100, …): the same in every trial, so
    that they can be compared, and few enough for a database.
    """
    while step >= 100:
        if step % 10:
            return False
        step //= 10
    return True
