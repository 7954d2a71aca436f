"""Ranks that wait for each other in vain."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World
from tensonde.model.finding import Finding
from tensonde.program.lines import source_line
from tensonde.store.collectives import GRADIENTS
from tensonde.store.standing import Stuck, stuck

_ADVICE = {
    "ended": "All ranks must make the same number of steps. Give each rank equally many batches (DistributedSampler, drop_last=True), "
    "or train inside `model.join()` if they cannot be equal. A decision to stop must be the same on all ranks.",
    "died": "Find out why that rank ended: look at its own output and its findings.",
    "elsewhere": "All ranks must call the same collectives in the same order. Look for a collective under `if rank == ...`, and for code in which the ranks take different branches.",
    "shapes": "All ranks must call a collective with the same shape and dtype. Pad, or exchange the sizes first.",
    "crossed": "Let one of the two send while the other receives, for example with `if rank % 2 == 0`, or post both with dist.isend and dist.irecv (or "
    "dist.batch_isend_irecv) and wait afterwards.",
    "tags": "A tensor that is sent with a tag is received only with the same tag: count both in the same way, or omit the tags.",
    "busy": "Either that rank takes another path and never reaches this call, or its work takes long: then let the others wait for it (a longer timeout of the group), or spread the work over the ranks.",
}


@world_rule("ranks-stuck", severity="error", explains=("exception", "crash", "replicas-drift"))
def ranks_stuck(world: World) -> Iterator[Finding]:
    """When the training ended, ranks had waited for seconds in a collective that another rank did not call, or a
    collective failed that not all ranks had joined.

    Each rank notes the collectives that it calls, with the loops and conditions around them, and its current line
    when nothing has happened for three seconds. A rank that failed outside a collective is the cause itself: its
    exception is the finding.
    """
    standings = world.standings
    if any(one.failed and one.inside is None for one in standings):
        return
    found = stuck(standings, after_the_end=True)
    if found is not None:
        yield _told(world, found)


@world_rule(
    "batch-left-out", severity="error", phase="data", explains=("ranks-stuck", "uneven-batches", "exception", "crash")
)
def left_out(world: World) -> Iterator[Finding]:
    """As far as is known, the ranks have equally many batches. One rank has made fewer backward passes than another,
    which waits in vain for its gradients, and the program has a line that skips a batch before its backward pass.
    """
    if any(one.failed and one.inside is None for one in world.standings):
        return
    found = stuck(world.standings, after_the_end=True)
    equally = _equally_many(world)
    if found is None or found.collective.kind.op != GRADIENTS or equally is False:
        return
    passes = {
        one.rank: max((call.number for call in one.calls if call.kind.op == GRADIENTS), default=0)
        for one in world.standings
    }
    kind = found.collective.kind
    fewest = min(passes, key=lambda rank: passes[rank])
    if not kind.skips or found.waiting[0].rank == fewest:
        return
    yield world.first.finding(
        f"Rank {fewest} skips a batch: it has made {passes[fewest]} backward passes, rank {found.waiting[0].rank} is in its "
        f"{passes[found.waiting[0].rank]}th and waits",
        "DistributedDataParallel needs a backward pass on every rank for every batch. Do not skip the batch: drop its bad samples, multiply the loss by 0, or let all ranks decide together (dist.all_reduce of the condition).",
        step=found.other.step,
        source=source_line(kind.file, kind.skips[0]),
        evidence={"backward_passes": passes, "lines": kind.skips},
        confidence=0.85 if equally else 0.6,
    )


def _equally_many(world: World) -> bool | None:
    """The loaders of the ranks have equally many batches; without loaders, their parts of the data are of one size. None where nothing is known
    of either, as of a rank that hangs before it has written its facts."""
    each: list[list[tuple[object, ...]]] = [
        [(one.length, one.batch_size, one.drop_last) for one in case.facts.loaders if one.passes]
        for case in world.cases
    ]
    if not any(each):
        each = [[(one.name, one.line, one.size) for one in case.facts.beginning.shares] for case in world.cases]
    return all(one == each[0] for one in each) if any(each) else None


@world_rule(
    "uneven-batches", severity="error", phase="data", explains=("ranks-stuck", "ranks-part-ways", "exception", "crash")
)
def uneven(world: World) -> Iterator[Finding]:
    """One rank has left a loop over data that another one is still in, and the other waits for it in vain: the ranks
    have different numbers of batches.
    """
    if any(one.failed and one.inside is None for one in world.standings):
        return
    found = stuck(world.standings, after_the_end=True)
    if found is None or found.loop is None or found.loop["what"] != "for" or found.loop.get("breaks"):
        return
    loop = found.loop
    at = loop.get("parting") or loop.get("made")
    if not at or at == loop["line"]:
        return
    case = world.first
    yield case.finding(
        f"The ranks have different numbers of batches: {found.sentence()}",
        _ADVICE["ended"],
        step=found.waiting[0].step,
        source=source_line(loop["file"], at),
        evidence=_evidence(found),
        confidence=0.9,
    )


@world_rule("rank-killed", severity="error", explains=("exception", "ranks-stuck"))
def killed(world: World) -> Iterator[Finding]:
    """A signal from outside ended the process of one rank, and with it the training of all."""
    for one in world.standings:
        if one.signal == "SIGKILL":
            case = next(case for case in world.cases if case.rank.rank == one.rank)
            others = [other for other in world.standings if other.inside is not None and other.rank != one.rank]
            waits = f"; rank {others[0].rank} waits for {others[0].inside}" if others else ""
            yield case.finding(
                f"SIGKILL ended the process of rank {one.rank} in step {one.step}{waits}",
                "SIGKILL comes from outside: the kernel when memory runs out (dmesg says so), a scheduler's limit, or kill -9. The other ranks cannot continue without it. The line is the last recorded call.",
                step=one.step,
                source=one.line,
                evidence={"rank": one.rank, "waiting": [other.rank for other in others]},
                confidence=0.95,
            )


def _told(world: World, found: Stuck) -> Finding:
    case = next(case for case in world.cases if case.rank.rank == found.waiting[0].rank)
    return case.finding(
        f"The ranks are stuck: {found.sentence()}",
        _ADVICE[found.why],
        step=found.waiting[0].step,
        source=found.culprit,
        evidence=_evidence(found),
        confidence=0.95,
    )


def _evidence(found: Stuck) -> dict[str, object]:
    other, waiting = found.other, found.waiting[0]
    return {
        "waiting": [one.rank for one in found.waiting],
        "collective": str(found.collective.kind),
        "number": found.collective.number,
        "line": str(waiting.line) if waiting.line is not None else None,
        "other_rank": other.rank,
        "other_line": str(other.line) if other.line is not None else None,
        "other_step": other.step,
    }
