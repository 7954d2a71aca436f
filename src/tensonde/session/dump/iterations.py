"""Which steps: a number, a list, or ranges as text (`0,10-20`, `0|10-20`, `all`)."""

from __future__ import annotations

import re
from typing import Any

from tensonde.errors import UsageError

Ranges = tuple[tuple[int, int], ...]
"""First and last, both included; () is every step."""

_PART = re.compile(r"(\d+)(?:-(\d+))?")


def parse_iterations(given: Any, *, key: str) -> Ranges:
    """`key` is what the user calls it. Raises UsageError."""
    if isinstance(given, bool) or given is None:
        raise _wrong(given, key)
    if isinstance(given, int | list):
        steps = given if isinstance(given, list) else [given]
        if not steps or not all(isinstance(step, int) and not isinstance(step, bool) and step >= 0 for step in steps):
            raise _wrong(given, key)
        return tuple((step, step) for step in sorted(set(steps)))
    if not isinstance(given, str):
        raise _wrong(given, key)
    text = given.strip()
    if text.lower() == "all":
        return ()
    found = []
    for part in re.split(r"[,|]", text):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise _wrong(given, key)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise UsageError(f"{key} has the range {part.strip()}, which ends before it begins; write {last}-{first}.")
        found.append((first, last))
    return tuple(sorted(found))


def _wrong(given: Any, key: str) -> UsageError:
    return UsageError(f'{key} is {given!r}; give a step (5), a list ([0, 5]), or ranges such as "0,10-20" or "all".')


def wanted(ranges: Ranges, step: int) -> bool:
    return not ranges or any(first <= step <= last for first, last in ranges)


def over(ranges: Ranges, step: int) -> bool:
    """No later step is wanted."""
    return bool(ranges) and step > max(last for _, last in ranges)
