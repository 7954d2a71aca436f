"""Where the ranks of a run stand, and whether they wait for each other in vain.

Each rank says in files of its own which collectives it has called, which one it is in, and where it is when nothing has happened for
some seconds. From these the reason can be told, while the training hangs and after it was killed. No rank is asked anything.
"""

from __future__ import annotations

import linecache
import re
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

from tensonde.model.site import SourceLine
from tensonde.program.lines import source_line
from tensonde.program.surroundings import surroundings
from tensonde.store.collectives import BUFFERS, GRADIENTS, Call, read_collectives
from tensonde.store.reader import Rank
from tensonde.store.whereabouts import Whereabouts, read_whereabouts

PATIENCE = 6.0
"""Seconds that a rank waits before anybody is told."""
Why = Literal["ended", "died", "elsewhere", "shapes", "busy", "crossed", "tags"]
PAIRS = ("send", "recv", "isend", "irecv", "send_object_list", "recv_object_list", "batch_isend_irecv")
"""Not all ranks of a group call these."""


@dataclass(frozen=True, slots=True)
class Standing:
    rank: int
    where: Whereabouts
    over: bool
    """The rank has closed its recording: its program has ended, or will."""
    gone: bool
    """Its process does not exist any more."""
    calls: tuple[Call, ...] = ()
    failed: bool = False
    """An exception or a crash of its own ended it."""
    signal: str = ""
    """What ended it from outside: as the process that started it said, or `SIGKILL` where it alone left no trace."""
    last: SourceLine | None = None
    """The line that it was at when a signal ended it."""

    @property
    def inside(self) -> Call | None:
        """The collective that it is in or waits for, or was in when it ended."""
        return next((call for call in reversed(self.calls) if call.seconds is None and not call.beside), None)

    @property
    def step(self) -> int:
        return self.where.step

    @property
    def line(self) -> SourceLine | None:
        """Where it is, as far as it has said."""
        inside = self.inside
        if inside is not None and inside.kind.source is not None:
            return inside.kind.source
        if self.where.left and self.where.left_file:
            return source_line(self.where.left_file, self.where.left_line)
        if self.last is not None:
            return self.last
        for found in (self.where.still, self.where):
            if found is not None and found.file:
                return source_line(found.file, found.line)
        return None


@dataclass(frozen=True, slots=True)
class Stuck:
    """`waiting` ranks are in the same collective; `other` is the one that keeps them waiting, `why` how.

    `culprit` is the line to look at first: of the rank that goes its own way, where that can be told.
    """

    waiting: tuple[Standing, ...]
    collective: Call
    other: Standing
    why: Why
    culprit: SourceLine | None
    loop: dict[str, Any] | None = None
    """The loop that the other rank has left, or goes through another number of times per step."""
    turns: tuple[int, int] | None = None
    """Of such a loop: calls per step, of a waiting rank and of the other one."""
    condition: SourceLine | None = None
    """The `if` that only one of them has gone into."""
    met: Call | None = None
    """The same call of the other rank, which has another shape or dtype there and has gone on."""

    def sentence(self) -> str:
        ranks = ", ".join(str(one.rank) for one in self.waiting)
        one = self.waiting[0]
        verb = "waits" if len(self.waiting) == 1 else "wait"
        at = f" at {one.line}" if one.line is not None else ""
        who = f"rank{'s' if len(self.waiting) > 1 else ''} {ranks} {verb}"
        return f"{who} for {self.collective} in step {one.step}{at}; {self._because()}"

    def _because(self) -> str:
        other, rank = self.other, f"rank {self.other.rank}"
        at = f" at {other.line}" if other.line is not None else ""
        out = ""
        if self.turns is not None and self.loop is not None:
            out = f"; in the loop at {source_line(self.loop['file'], self.loop['line'])} rank {self.waiting[0].rank} calls it {self.turns[0]} times per step, {rank} {self.turns[1]} times"
        elif self.loop is not None:
            out = (
                f"; it left the loop at {source_line(self.loop['file'], self.loop['line'])} after step {other.step - 1}"
            )
        elif self.condition is not None:
            out = f"; only one of them went into the condition at {self.condition}"
        match self.why:
            case "ended":
                return f"rank {other.rank} has ended after {other.step} steps{at if other.where.left else ''}{out}"
            case "died":
                return f"the process of {rank} is gone, last seen in step {other.step}{at}"
            case "crossed":
                return (
                    f"rank {other.rank} waits for {other.inside}{at}: each waits for the other to do the opposite first"
                )
            case "tags":
                return f"{rank} waits for {other.inside}{at}: their tags differ"
            case "shapes" if self.met is not None:
                return f"{rank} calls {self.met} there, at {self.met.kind.source}, and has gone on"
            case "busy":
                return f"{rank} is not there: it is in step {other.step}{at}"
            case _:
                return f"{rank} waits for {other.inside or 'another collective'} in step {other.step}{at}{out}"


def members(ranks: list[Rank]) -> list[Rank]:
    """Those that belong to a training of several ranks. The process that started them may have recorded something, too; and where an elastic
    launcher has started ranks anew, maybe in another number, only the last ones count."""
    found = [rank for rank in ranks if (rank.session.get("world_size") or 1) > 1]
    if not found:
        return ranks
    order = sorted(found, key=lambda rank: str(rank.session.get("started") or ""))
    last = {rank.rank: rank for rank in order if rank.session.get("world_size") == order[-1].session.get("world_size")}
    return [rank for rank in found if last.get(rank.rank) is rank]


def standings_of(ranks: list[Rank]) -> list[Standing]:
    """Of the ranks that have said anything, one per rank."""
    found: dict[int, Standing] = {}
    own = members(ranks)
    killed = _killed([rank for rank in ranks if rank not in own])
    for rank in own:
        where = read_whereabouts(rank.folder)
        if where is not None and rank.rank not in found:
            calls = tuple(read_collectives(rank.folder))
            gone = not rank.closed and not rank.live
            signal = "" if rank.closed else killed.get(rank.rank, "")
            ending = rank.ending if gone else None
            last = ending.source if ending is not None and ending.stack else None
            if last is None and ending is not None and ending.stack:
                last = calls[-1].kind.source if calls else None
            found[rank.rank] = Standing(rank.rank, where, rank.closed, gone, calls, _failed(rank), signal, last)
    return _traceless(list(found.values()))


def _traceless(ranks: list[Standing]) -> list[Standing]:
    """Where all ranks are gone and some left no trace, these were killed: whoever started them has told the others to end, which leaves one."""
    left = [one for one in ranks if one.gone and one.last is None and not one.failed and not one.where.left]
    others = [one for one in ranks if one not in left]
    if not left or not others or not all(one.failed or (one.gone and one.last is not None) for one in others):
        return ranks
    return [replace(one, signal="SIGKILL") if one in left else one for one in ranks]


_ENDED = re.compile(r"process (\d+) terminated with signal (SIG\w+)")


def _killed(launchers: list[Rank]) -> dict[int, str]:
    """Ranks and signals, from what the process that started them raised."""
    said = [str(((rank.session.get("exit") or {}).get("exception") or {}).get("message", "")) for rank in launchers]
    return {int(found[1]): found[2] for text in said if (found := _ENDED.search(text))}


def _failed(rank: Rank) -> bool:
    failure = (rank.session.get("exit") or {}).get("exception") or next(
        (event for event in rank.events if event.get("kind") == "exception"), None
    )
    if failure is not None:
        return failure.get("type") != "KeyboardInterrupt"
    ending = rank.ending
    return ending is not None and ending.is_crash


def stuck(ranks: list[Standing], *, now: float | None = None, after_the_end: bool = False) -> Stuck | None:
    """The ranks that have waited for long and the one that they wait for; None where all is well, or nothing can be said.

    `after_the_end`: all processes are gone. Then a rank has waited in vain if it had stood still, or if it failed in its collective.
    """
    moment = time.time() if now is None else now
    if not after_the_end and any(one.where.held and not one.gone for one in ranks):
        return None  # they wait for somebody at a debugger
    inside = [
        (call, one)
        for one in ranks
        if (call := one.inside) is not None
        and (
            one.where.still is not None or one.failed
            if after_the_end
            else not one.over and not one.gone and moment - call.began >= PATIENCE
        )
    ]
    if not inside:
        return None
    collective, first = min(inside, key=lambda pair: pair[0].began)
    if collective.kind.peer >= 0:
        return _pair(ranks, first, collective, after_the_end)
    together = tuple(one for one in ranks if one is first or _same(one.inside, collective))
    for one in ranks:
        if one not in together and (met := _met(one, collective)) is not None:
            return Stuck(together, collective, one, "shapes", collective.kind.source, met=met)
        if one not in together and (why := _why(one, collective, after_the_end)) is not None:
            return _told(together, collective, one, why)
    return None


def waits_for_absent(ranks: list[Standing], recorded: list[Rank], *, now: float | None = None) -> str | None:
    """What to say where a rank has waited for long, and nothing is known of others: they have called neither a collective nor a model yet, or run
    without Tensonde."""
    size = max((int(rank.session.get("world_size") or 1) for rank in recorded), default=1)
    absent = [str(rank) for rank in range(min(size, 65536)) if rank not in {one.rank for one in ranks}]
    moment = time.time() if now is None else now
    for one in ranks:
        call = one.inside
        if absent and call is not None and not one.gone and not one.where.held and moment - call.began >= PATIENCE:
            at = f" at {one.line}" if one.line is not None else ""
            return f"rank {one.rank} waits for {call}{at}; rank {', '.join(absent[:8])} has called no collective and no model yet"
    return None


def _pair(ranks: list[Standing], first: Standing, call: Call, after_the_end: bool) -> Stuck | None:
    """A tensor goes from one rank to another: who waits for whom is followed from rank to rank, until one does not wait, or all wait in a circle."""
    known, seen, one, waited = {other.rank: other for other in ranks}, {first.rank}, first, call
    while (other := known.get(waited.kind.peer)) is not None:
        there = other.inside
        if there is None or there.kind.peer < 0:
            why = _why(other, waited, after_the_end)
            return _told((one,), waited, other, why) if why is not None else None
        if there.kind.peer == one.rank and ("recv" in there.kind.op) != ("recv" in waited.kind.op):
            if there.kind.what != waited.kind.what:
                return _told((one,), waited, other, "shapes")
            if there.kind.tag != waited.kind.tag and min(there.kind.tag, waited.kind.tag) >= 0:
                receives = waited if "recv" in waited.kind.op else there
                return Stuck((one,), waited, other, "tags", receives.kind.source)
            return None
        if other.rank in seen:
            return _told((one,), waited, other, "crossed")
        seen.add(other.rank)
        one, waited = other, there
    return None


def _met(one: Standing, collective: Call) -> Call | None:
    """The call of this rank that the back end brings together with that of another: the same collective with another shape, dtype or reduction.
    The rank may have come out of it, where the other has not."""
    for call in one.calls:
        if (call.kind.group, call.number, call.kind.op) == (
            collective.kind.group,
            collective.number,
            collective.kind.op,
        ):
            known = call.kind.op not in (GRADIENTS, BUFFERS, *PAIRS) and call.seconds is not None
            return call if known and signature(call) != signature(collective) else None
    return None


def _same(one: Call | None, other: Call) -> bool:
    return one is not None and signature(one) == signature(other)


def signature(call: Call) -> tuple[Any, ...]:
    """What must be equal on all ranks. Shapes of object lists, of scattered and of exchanged tensors need not be."""
    kind = call.kind
    what = "" if kind.op.startswith(("all_to_all", "scatter", "gather")) or "object" in kind.op else kind.what
    return call.number, kind.group, kind.op, kind.reduce, what


def _why(one: Standing, collective: Call, after_the_end: bool) -> Why | None:
    there = one.inside
    if there is not None:
        same_call = (there.kind.group, there.number, there.kind.op) == (
            collective.kind.group, collective.number, collective.kind.op,
        )  # fmt: skip
        return "shapes" if same_call else "elsewhere"
    if one.over and not one.failed:
        return "ended"
    if one.where.left:
        return "ended"
    if one.gone and not after_the_end:
        return "died"
    if one.failed or one.signal:
        return "died"
    return "busy"


def _told(together: tuple[Standing, ...], collective: Call, other: Standing, why: Why) -> Stuck:
    loop = _left(collective.kind.around, other) if why in ("ended", "elsewhere") else None
    if why == "elsewhere" and other.inside is not None:
        own = _left(other.inside.kind.around, together[0])
        if loop is None and own is not None:  # they have left a loop that the other is still in: it waits for them
            return _told((other,), other.inside, together[0], why)
        loop = min((one for one in (loop, own) if one is not None), key=lambda one: int(one["line"]), default=None)
        if loop is None and (since := _left_since(together[0], other)) is not None:
            who, loop = since
            if who is together[0]:
                together, collective, other = (other,), other.inside, who
    first = together[0]
    culprit = collective.kind.source
    turns = _turns(collective, first, other)
    if turns is not None:
        loop = next(block for block in reversed(collective.kind.around) if block["what"] == "for")
        return Stuck(together, collective, other, why, source_line(loop["file"], loop["line"]), loop, turns)
    if why == "ended" and other.where.left:
        culprit, loop = other.line or culprit, None
    elif why == "busy" and _polls(other):
        culprit = other.line
    elif (under := _under_rank(together[0], other)) is not None:
        culprit, loop = under, None
    elif (condition := _condition(together[0], other)) is not None:
        return Stuck(together, collective, other, why, source_line(*condition), None, None, source_line(*condition))
    elif loop is not None:
        breaks = loop.get("breaks") or ()
        culprit = source_line(loop["file"], breaks[0] if breaks else loop["line"])
    elif why == "elsewhere" and not _alone(first.inside, other) and _alone(other.inside, first):
        culprit = other.line
    elif why in ("busy", "died"):
        culprit = other.line or culprit
    return Stuck(together, collective, other, why, culprit, loop)


def _polls(other: Standing) -> bool:
    """It stands in a `while` and sleeps there: it waits for something that is no collective, such as a file."""
    line = other.line if other.where.still is not None else None
    return (
        line is not None
        and "sleep" in linecache.getline(line.file, line.line)
        and any(one["what"] == "while" for one in surroundings(line.file, line.line))
    )


def _turns(collective: Call, one: Standing, other: Standing) -> tuple[int, int] | None:
    """Calls of this kind per step on both ranks, where these are different numbers, each the same in all steps but the last, and the call stands in
    two loops: the inner one goes on for longer on one rank."""
    if sum(block["what"] == "for" for block in collective.kind.around) < 2:
        return None
    found = []
    for rank in (one, other):
        counts: dict[int, int] = {}
        for call in rank.calls:
            if (call.kind.op, call.kind.file, call.kind.line) == (
                collective.kind.op,
                collective.kind.file,
                collective.kind.line,
            ):
                counts[call.step] = counts.get(call.step, 0) + 1
        numbers = [counts[step] for step in sorted(counts)]
        if len(numbers) < 4 or len(set(numbers[1:-1])) > 1:
            return None
        found.append(numbers[1])
    return (found[0], found[1]) if found[0] != found[1] else None


def _under_rank(one: Standing, other: Standing) -> SourceLine | None:
    """The call that stands under a condition on the rank, at a line that the other rank has never been at: the first at which the two part, or
    the one that they are in. A call too many may be answered by a later one of the other rank, and be noticed long after."""
    for calls in (_parting(one, other), (one.inside, other.inside)):
        found = [
            call.kind.source
            for call, beside in zip(calls, (other, one), strict=True)
            if call is not None and _alone(call, beside) and any(_on_rank(block) for block in call.kind.around)
        ]
        if len(found) == 1:
            return found[0]
    return None


def _condition(one: Standing, other: Standing) -> tuple[str, int] | None:
    """The `if` that one of two ranks has gone into and the other has not, since the last call that both have made at the same line.

    Where only one has also left a loop since then, the loop may be what they part at, as with uneven batches; not if the other rank was
    inside the condition before, for then both have left that loop together before."""
    last = _last_common(one, other)
    here, there = one.inside, other.inside
    if last is None or here is None or there is None:
        return None
    before, a, b = (_blocks(call) for call in (last, here, there))
    entered = [
        (block, other) for block in here.kind.around if _block(block) not in before | b and block["what"] == "if"
    ]
    entered += [
        (block, one) for block in there.kind.around if _block(block) not in before | a and block["what"] == "if"
    ]
    if len({id(beside) for _, beside in entered}) != 1:
        return None
    block, beside = entered[0]
    loops = {found for found in before if found[2] != "if"}
    if loops - a != loops - b and not any(_block(block) in _blocks(call) for call in beside.calls):
        return None
    return str(block["file"]), int(block["line"])


def _block(block: dict[str, Any]) -> tuple[str, int, str]:
    return block["file"], block["line"], block["what"]


def _blocks(call: Call) -> set[tuple[str, int, str]]:
    return {_block(block) for block in call.kind.around}


def _left_since(one: Standing, other: Standing) -> tuple[Standing, dict[str, Any]] | None:
    """The first rank to leave a loop that both were in together, and the loop. What it called next the other still answered, from inside the loop:
    so they are noticed to wait long after."""
    last = _last_common(one, other)
    if last is None:
        return None
    here, there = (_call(rank, last.kind.group, last.number + 1) for rank in (one, other))
    if here is None or there is None:
        return None
    left = [
        (who, block)
        for who, gone, still in ((one, here, there), (other, there, here))
        for block in still.kind.around
        if block["what"] != "if" and _block(block) in _blocks(last) - _blocks(gone)
    ]
    return left[0] if len({id(who) for who, _ in left}) == 1 else None


def _call(rank: Standing, group: str, number: int) -> Call | None:
    return next((call for call in rank.calls if (call.kind.group, call.number) == (group, number)), None)


def _last_common(one: Standing, other: Standing) -> Call | None:
    """The last call that both ranks have made and come out of, with the same number at the same line, to which they came by the same way."""
    done = {(call.kind.group, call.number): call for call in other.calls if call.seconds is not None}
    for call in reversed(one.calls):
        beside = done.get((call.kind.group, call.number)) if call.seconds is not None else None
        same_line = beside is not None and (call.kind.file, call.kind.line) == (beside.kind.file, beside.kind.line)
        if beside is not None and same_line and _blocks(call) == _blocks(beside):
            return call
    return None


def _on_rank(block: dict[str, Any]) -> bool:
    return block["what"] == "if" and bool(block.get("parting"))


def _parting(one: Standing, other: Standing) -> tuple[Call | None, Call | None]:
    """The first calls with the same number, in the same group, at different lines."""
    there = {(call.kind.group, call.number): call for call in other.calls if call.kind.op not in PAIRS}
    for call in one.calls:
        beside = there.get((call.kind.group, call.number))
        if beside is not None and (call.kind.file, call.kind.line) != (beside.kind.file, beside.kind.line):
            return call, beside
    return None, None


def _alone(call: Call | None, other: Standing) -> bool:
    """Whether the other rank has never been at the line of a call."""
    if call is None:
        return False
    here = call.kind.file, call.kind.line
    return all((known.kind.file, known.kind.line) != here for known in other.calls)


def _left(around: list[dict[str, Any]], other: Standing) -> dict[str, Any] | None:
    """The outermost of these loops that the other rank was in before and is not in any more."""
    there = other.inside
    now = {(one["file"], one["line"]) for one in (there.kind.around if there is not None else ())}
    was = {(one["file"], one["line"]) for call in other.calls for one in call.kind.around}
    for one in around:
        key = one["file"], one["line"]
        if one["what"] in ("for", "while") and key not in now and key in was:
            return one
    return None
