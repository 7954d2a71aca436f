"""Where the ways of two values part: the line at which one of them goes through something that the other does not, or where both are scaled otherwise.

That is no proof of a mistake. It says where to look when an experiment has shown that the two do not belong together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tensonde.model.site import SourceLine
from tensonde.program.lines import source_line
from tensonde.program.ways import Deed, Way, way_of

_SLICE = re.compile(r"[^,\[\]]*:[^,\[\]]*")
_BATCH = re.compile(r"\w+:\w+ \+")
"""`start:start + size`: rows of one batch."""
_WEIGHTS = {"shift": 3, "order": 3, "index": 2, "shape": 1, "turn": 1}


def parting(
    one: Way, other: Way, *, loose: bool = False, whole: bool = False, sure: bool = False
) -> tuple[str, int] | None:
    """Where one of the two is shifted or put into another order, or, on a line that both pass, has rows chosen, and the other is not; the second way (of targets) first, of which also axes that
    are exchanged count: those of inputs often are. `loose`: also what is chosen on lines of their own. `whole`: not what stays within a sample. `sure`: only orders and shifts."""
    if other.counted and all(deed.kind in ("shape", "turn") for deed in other.deeds):
        return None if sure else _placed(one, other)
    best: tuple[int, tuple[str, int]] | None = None
    for way, beside, more in ((other, one, 1), (one, other, 0)):
        there = {(deed.kind, deed.text, deed.inside) for deed in beside.deeds}
        for deed in way.deeds:
            if (deed.kind, deed.text, deed.inside) in there or deed.kind not in _WEIGHTS or (whole and deed.inside):
                continue
            if sure and deed.kind not in ("order", "shift"):
                continue
            same_line = deed.kind == "index" and (deed.path, deed.line) in beside.lines
            if (deed.kind == "index" and not same_line and not loose) or (
                deed.kind in ("shape", "turn") and way is one
            ):
                continue
            weight = 2 * _WEIGHTS[deed.kind] + more
            if deed.kind == "order" and (plain := _left_as_it_was(beside, way)) is not None:
                deed = plain
            if best is None or weight > best[0]:
                best = weight, (deed.path, deed.line)
    return best[1] if best is not None else None


def _first(text: str) -> str:
    """Of an index: what it says of the first dimension."""
    return text.strip("()").split(",")[0]


def _placed(one: Way, other: Way) -> tuple[str, int] | None:
    """Where targets are made by position alone (`arange(5).repeat(6)`), the order of inputs is what it is: what matters is how either is laid out."""
    found = [d for d in one.deeds if d.kind == "turn"] or [d for d in other.deeds if d.kind in ("shape", "turn")]
    return (found[0].path, found[0].line) if found else None


def _left_as_it_was(way: Way, ordered: Way) -> Deed | None:
    """Where rows are taken one after the other, on their way to the same batch, that the other way takes by an order which was drawn."""
    if not any(d.kind == "index" and not _SLICE.fullmatch(_first(d.text)) for d in ordered.deeds):
        return None
    there = {(deed.kind, deed.text) for deed in ordered.deeds}
    plain = [
        d for d in way.deeds if d.kind == "index" and _BATCH.match(_first(d.text)) and (d.kind, d.text) not in there
    ]
    return plain[0] if len(plain) == 1 else None


def moved(one: Way, other: Way) -> tuple[str, int] | None:
    """The last thing on its way that moves the second along, or takes a part of it, as nothing does to the first."""
    there = {(deed.kind, deed.text) for deed in one.deeds}
    for deed in other.deeds:
        part = deed.kind == "index" and any(_SLICE.fullmatch(text) for text in deed.text.strip("()").split(", "))
        if (part or deed.kind in ("shift", "order")) and (deed.kind, deed.text) not in there:
            return deed.path, deed.line
    return None


def split(one: Way, other: Way) -> tuple[str, int] | None:
    """Where rows of the second are cut out, and those of the first as often, at other places."""
    ours, theirs = ([d for d in way.deeds if d.kind == "index" and _SLICE.fullmatch(d.text)] for way in (one, other))
    both = {d.text for d in ours} & {d.text for d in theirs}
    return (theirs[0].path, theirs[0].line) if not both and 0 < len(ours) == len(theirs) else None


def scaled_apart(one: Way, other: Way) -> tuple[str, int] | None:
    """Where the second of two ways that lead to the same kind of data may be scaled otherwise than the first: a division that both pass and that a condition decides on, a division of its own, or
    the call by which it comes to a division that both pass."""
    ours, theirs = ([d for d in way.deeds if d.kind == "division"] for way in (one, other))
    both = [d for d in theirs if d in ours]
    chosen = [d for d in both if d.chosen]
    own = [d for d in theirs if d.text not in {known.text for known in ours}]
    names = {name for _, _, name in one.calls}
    calls = [
        (path, line)
        for path, line, name in other.calls
        if both and name in names and (path, line, name) not in one.calls
    ]
    found = [*((d.path, d.line) for d in chosen), *((d.path, d.line) for d in own), *calls]
    return found[0] if found else None


def last(way: Way, kind: str) -> tuple[str, int] | None:
    """The last deed of a kind on the way: a `division`, where the value was scaled; a `join`, where it was put together; a `domain`, where a function was
    taken of it that has no value for some numbers."""
    return next(((deed.path, deed.line) for deed in way.deeds if deed.kind == kind), None)


class Ways:
    """The ways of a step's values, by their numbers, from the variables that hold them."""

    def __init__(self) -> None:
        self._where: dict[int, tuple[str, int, str]] = {}

    def note(self, value: int, path: str, line: int, name: str) -> None:
        """At this line of a file, the variable of this name holds the value."""
        self._where[value] = path, line, name

    def parting(
        self,
        ones: Sequence[int],
        others: Sequence[int],
        *,
        loose: bool = False,
        whole: bool = False,
        sure: bool = False,
    ) -> SourceLine | None:
        """The first of each that a variable holds is followed."""
        one = next((self._where[n] for n in ones if n in self._where), None)
        other = next((self._where[n] for n in others if n in self._where), None)
        if one is None or other is None:
            return None
        ways = way_of(*one), way_of(*other)
        place = parting(*ways, loose=loose, whole=whole, sure=sure) or (split(*ways) if whole and not sure else None)
        return source_line(*place) if place is not None else None

    def moved(self, one: int, other: int) -> SourceLine | None:
        """The last line that moves one of two along its positions, and not the other: the second first."""
        if one not in self._where or other not in self._where:
            return None
        ways = way_of(*self._where[one]), way_of(*self._where[other])
        place = moved(*ways) or moved(*ways[::-1])
        return source_line(*place) if place is not None else None

    def last(self, value: int, kind: str) -> SourceLine | None:
        """Where the text last does something of a kind to what the variable holds."""
        place = last(way_of(*self._where[value]), kind) if value in self._where else None
        return source_line(*place) if place is not None else None
