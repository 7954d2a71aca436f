"""Two sets of choices held against each other: settings of a module, arguments of an op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensonde.compare.verdict import Setting
from tensonde.model.trace import OpRecord


def different(a: Any, b: Any) -> bool:
    if (
        isinstance(a, int | float)
        and isinstance(b, int | float)
        and not isinstance(a, bool)
        and not isinstance(b, bool)
    ):
        return abs(a - b) > 1e-12 * max(abs(a), abs(b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) != len(b) or any(different(x, y) for x, y in zip(a, b, strict=True))
    return bool(a != b)


def compared(prefix: str, a: Mapping[str, Any], b: Mapping[str, Any], *, union: bool = True) -> Iterator[Setting]:
    for key in {**a, **(b if union else {})}:
        if (union or key in b) and different(a.get(key), b.get(key)):
            yield Setting(f"{prefix}{key}", a.get(key), b.get(key))


def arguments(mine: OpRecord, theirs: OpRecord) -> Iterator[Setting]:
    """Of two ops of one kind."""
    skipped = {"sizes", "inner", "partial"}
    whole = "partial" not in mine.arguments and "partial" not in theirs.arguments
    one = {name: value for name, value in mine.arguments.items() if name not in skipped}
    other = {name: value for name, value in theirs.arguments.items() if name not in skipped}
    yield from compared(f"{mine.site}.", one if whole else _both(one, other), other if whole else _both(other, one))


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Frameworks say other things of an op: what both say counts."""
    return {name: value for name, value in one.items() if name in other}
