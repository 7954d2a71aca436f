"""Memory over one step, as a curve that is small enough to be drawn: by use, and by module."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

from tensonde.adapters.torch.memory.account import Account, bytes_of, use_of
from tensonde.adapters.torch.memory.ledger import Held
from tensonde.model.memory import USES
from tensonde.program.lines import to_json

MOST_POINTS = 400
MOST_MODULES = 10
COMPUTED = ("activations", "workspace")


def course_of(account: Account) -> dict[str, Any]:
    """Of the step that has the peak (`MemoryCourse`)."""
    ends = account.ends
    number = bisect_right(ends, account.at)
    first, last = (ends[number - 1] if number else 0), ends[number]
    chosen = _chosen(account, first, last)
    names = _grouping(account)
    uses: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    points: list[tuple[int, Counter[str], Counter[str]]] = []
    latest = wanted = 0
    for k in range(last):
        entry = account.ledger.log[k]
        held = account.ledger.held[max(entry, ~entry)]
        change, use = account.changes[k], use_of(held)
        uses[use] += change
        if change and use in COMPUTED:
            modules[names(held)] += change
        if entry >= 0 and held.device == account.device:
            latest = entry
        if wanted < len(chosen) and chosen[wanted] == k:
            points.append((latest, uses.copy(), modules.copy()))
            wanted += 1
    places: dict[tuple[Any, ...], int] = {}
    at = [places.setdefault(_place(account.ledger.held[entry]), len(places)) for entry, _, _ in points]
    peak = chosen.index(account.at)
    largest = [name for name, _ in points[peak][2].most_common() if name]
    return {
        "step": number,
        "length": last - first,
        "at": [k - first for k in chosen],
        "peak": peak,
        "places": [dict(zip(("phase", "op", "module", "line"), (*key[:3], to_json(key[3])), strict=True)) for key in places],
        "place": at,
        "uses": {use: found for use in USES if any(found := [used[use] for _, used, _ in points])},
        "modules": {name: found for name in (*largest, "") if any(found := [used[name] for _, _, used in points])},
    }  # fmt: skip


def _place(held: Held) -> tuple[Any, ...]:
    return str(held.phase), held.op, held.place.module, held.place.line


def _chosen(account: Account, first: int, last: int) -> list[int]:
    """Entries of the log: of each stretch the lowest and the highest, so the peak is always among them."""
    used, levels = sum(account.changes[:first]), []
    for change in account.changes[first:last]:
        used += change
        levels.append(used)
    if len(levels) <= MOST_POINTS:
        return list(range(first, last))
    stretch = -(-len(levels) // (MOST_POINTS // 2))
    found: set[int] = set()
    for begin in range(0, len(levels), stretch):
        there = range(begin, min(begin + stretch, len(levels)))
        found |= {min(there, key=levels.__getitem__), max(there, key=levels.__getitem__)}
    return [first + k for k in sorted(found)]


def _grouping(account: Account) -> Callable[[Held], str]:
    """Names of groups of modules, "" for all but the largest at the peak. A module that computed more than half of what is there is told
    by its parts."""
    sizes: Counter[str] = Counter()
    for held in account.alive(account.at):
        if use_of(held) in COMPUTED and held.place.module:
            sizes[held.place.module] += bytes_of(held)
    split: set[str] = set()

    def group(name: str) -> str:
        parts = name.split(".")
        return next((cut for k in range(1, len(parts)) if (cut := ".".join(parts[:k])) not in split), name)

    groups: Counter[str] = Counter()
    while True:
        groups.clear()
        for name, size in sizes.items():
            groups[group(name)] += size
        large = {name for name, size in groups.items() if size * 2 > groups.total()} - split
        if not large:
            break
        split |= large
    shown = {name for name, _ in groups.most_common(MOST_MODULES)}

    def shown_group(held: Held) -> str:
        name = group(held.place.module)
        return name if name in shown else ""

    return shown_group
