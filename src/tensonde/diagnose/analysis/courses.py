"""Where the courses of ranks part: the first step in which they do not do the same, and the statement that decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tensonde.diagnose.case import Case
from tensonde.diagnose.world import World
from tensonde.model.facts import Around, CourseFact, Deed
from tensonde.model.site import SourceLine
from tensonde.program.lines import source_line
from tensonde.store.standing import standings_of

_MADE_ALIKE = ("backward", "step", "schedule", "freeze", "group")
"""What ranks that hold one model do alike. Weights may be loaded and written on one rank, which evaluates with them."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Of two ranks: what each did at the place where the other did something else; None where it did nothing more in that step."""

    step: int
    ranks: tuple[int, int]
    deeds: tuple[Deed | None, Deed | None]

    @property
    def doer(self) -> tuple[int, Deed]:
        """The rank that does what the other does not: it has come to a line that stands under more conditions."""
        known = [(rank, deed) for rank, deed in zip(self.ranks, self.deeds, strict=True) if deed is not None]
        rare = [one for one in known if one[1].what not in ("backward", "step")]
        return max(rare or known, key=lambda one: (len(one[1].around), one[1].what == "step"))

    @property
    def decided(self) -> SourceLine | None:
        """The line of the outermost condition or loop that one of the deeds stands in and the other does not; else that of the deed."""
        _, deed = self.doer
        other = next((one for one in self.deeds if one is not deed), None)
        for block in deed.around:
            if not _covers(block, other):
                return source_line(block.file, block.line)
        between = [
            line for line in deed.skips if other is not None and other.line is not None and line > other.line.line
        ]
        return source_line(deed.line.file, between[0]) if between and deed.line is not None else deed.line


def _covers(block: Around, deed: Deed | None) -> bool:
    if deed is None or deed.line is None:
        return block.what != "if"
    return block.file == deed.line.file and block.line <= deed.line.line <= block.end


def first_parting(world: World, *, also: tuple[str, ...] = ()) -> Parting | None:
    """`also`: deeds that ranks need not do alike, and that count all the same."""
    found = [
        parting
        for case in world.cases[1:]
        if (parting := _between(world.first, case, (*_MADE_ALIKE, *also))) is not None
    ]
    return min(found, key=lambda one: one.step, default=None)


def _between(first: Case, other: Case, wanted: tuple[str, ...]) -> Parting | None:
    own, course = first.facts.course, other.facts.course
    own_steps, steps = first.facts.steps, other.facts.steps
    if not own.stretches or not course.stretches:
        return _by_events(first, other)
    if not own.whole or not course.whole:
        return None
    marks = {one.step for one in (*own.stretches, *course.stretches)} | {own_steps, steps}
    for step in sorted(mark for mark in marks if mark <= min(own_steps, steps)):
        mine, mine_ended = _done(own, step, own_steps, wanted)
        theirs, theirs_ended = _done(course, step, steps, wanted)
        for k in range(max(len(mine), len(theirs))):
            pair = (mine[k] if k < len(mine) else None, theirs[k] if k < len(theirs) else None)
            if (pair[0] is None and not mine_ended) or (pair[1] is None and not theirs_ended):
                break  # it may still have come
            if _key(pair[0]) != _key(pair[1]):
                return Parting(step, (first.rank.rank, other.rank.rank), pair)
    return None


def _by_events(first: Case, other: Case) -> Parting | None:
    """One of them was killed before it could write its course: what the ranks train is noted at once."""
    mine, its = ({_key(deed): (step, deed) for step, deed in _noted(case)} for case in (first, other))
    standings = {one.rank: one.step for one in standings_of([first.rank, other.rank])}
    found = []
    for case, own, theirs in ((first, mine, its), (other, its, mine)):
        peer = other if case is first else first
        for key, (step, deed) in own.items():
            if standings.get(peer.rank.rank, -1) >= step and theirs.get(key, (step + 1,))[0] > step:
                deeds = (deed, None) if case is first else (None, deed)
                found.append(Parting(step, (first.rank.rank, other.rank.rank), deeds))
    return min(found, key=lambda one: one.step, default=None)


def _noted(case: Case) -> Iterator[tuple[int, Deed]]:
    for event in case.events:
        if event.get("kind") == "deed" and isinstance(event.get("step"), int):
            with contextlib.suppress(msgspec.ValidationError):
                yield (
                    event["step"],
                    msgspec.convert(
                        {key: event.get(key) for key in ("what", "line", "around", "skips", "by_rank")}, Deed
                    ),
                )


def _done(course: CourseFact, step: int, steps: int, wanted: tuple[str, ...]) -> tuple[list[Deed], bool]:
    """The deeds of a step, and whether that step has ended."""
    if step >= steps:
        return list(_deeds(course, course.pending, wanted)), False
    known = [one.did for one in course.stretches if one.step <= step]
    return list(_deeds(course, known[-1] if known else [], wanted)), True


def _deeds(course: CourseFact, numbers: list[int], wanted: tuple[str, ...]) -> Iterator[Deed]:
    for number in numbers:
        if number < len(course.deeds) and course.deeds[number].what in wanted:
            yield course.deeds[number]


def _key(deed: Deed | None) -> tuple[object, ...]:
    return (deed.what, deed.line) if deed is not None else ()


_WORDS = {
    "backward": "goes backward",
    "step": "steps the optimizer",
    "schedule": "steps the scheduler",
    "load": "loads weights",
    "freeze": "changes which parameters are trained",
    "group": "gives parameters to the optimizer",
    "write": "has written weights itself",
}


def told(parting: Parting) -> str:
    """Of both ranks."""
    parts = [f"rank {rank} {_said(deed)}" for rank, deed in zip(parting.ranks, parting.deeds, strict=True)]
    return ", ".join(parts)


def _said(deed: Deed | None) -> str:
    return f"{_WORDS.get(deed.what, deed.what)} at {deed.line}" if deed is not None else "does nothing more"
