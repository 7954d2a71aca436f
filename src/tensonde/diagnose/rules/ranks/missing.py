"""Ranks that have recorded nothing, and those that failed before they could."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import raised
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.finding import Finding
from tensonde.program.lines import source_line
from tensonde.store.collectives import Call
from tensonde.store.meetings import in_vain, read_meetings
from tensonde.store.reader import Rank, rank_number
from tensonde.store.standing import standings_of


@rule("ranks-missing", severity="info")
def missing(case: Case) -> Iterator[Finding]:
    """The training has more ranks than have recorded anything: the others run without Tensonde, or on another
    machine. They are not compared.
    """
    size = int(case.rank.session.get("world_size") or 1)
    folders = [path.name for path in case.rank.folder.parent.glob("rank*") if path.is_dir()]
    there = {rank_number(name.removeprefix("rank").partition("-")[0]) for name in folders}
    absent = [str(rank) for rank in range(size) if rank not in there]
    if 1 < size <= 65536 and absent and case.rank.rank == min(there):
        yield case.finding(
            f"{len(absent)} of {size} ranks recorded nothing: rank {some(absent, 8)}",
            "Start every rank under `tensonde run`. Ranks on other machines are recorded there. This report covers only the ranks that recorded.",
            step=None,
            evidence={"ranks": size, "missing": len(absent)},
            confidence=1.0,
        )


_FAILED = re.compile(r"-- Process (\d+) terminated with the following error:\n(.*)", re.DOTALL)
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in', re.MULTILINE)
_LIBRARY = ("site-packages", "dist-packages", "/lib/python", "/tensonde/")


@rule("rank-failed-early", severity="error", phase="init", explains=("exception", "ranks-stuck"))
def failed_early(case: Case) -> Iterator[Finding]:
    """A rank failed before it called a model, so it has recorded nothing. The process that started it has its
    traceback.
    """
    event = raised(case)
    told = _FAILED.search(str(event.get("message", ""))) if event is not None else None
    if told is None or event is None or event.get("type") != "ProcessRaisedException":
        return
    folders = [path for path in case.rank.folder.parent.glob("rank*") if path.is_dir() and path != case.rank.folder]
    others = standings_of([Rank(path) for path in folders])
    if any(one.rank == int(told[1]) or one.failed for one in others):
        return  # it has recorded something, which tells it better
    places = [(path, int(line)) for path, line in _FRAME.findall(told[2]) if not any(word in path for word in _LIBRARY)]
    if not places:
        return
    said = [line for line in told[2].strip().splitlines() if line and not line.startswith(" ")]
    source = source_line(*places[-1])
    waits = (
        " Nothing else failed before: check whether all ranks call the same collective here, with the same source."
        if any(word in said[-1] for word in ("peer", "Timed out", "timed out", "timeout"))
        else ""
    )
    alone = next((one.inside for one in others if waits and one.inside is not None and _by_rank(one.inside)), None)
    apart = in_vain(read_meetings(case.rank.folder.parent))
    there = f"; {apart}" if apart is not None else ""
    there += "".join(f"; rank {one.rank} waits for {one.inside} at {one.line}" for one in others[:4] if one.inside)
    yield case.finding(
        f"Rank {told[1]} failed before it trained, at {source}: {said[-1][:200]}{there}",
        "Only some ranks reach this call, which is under a condition on the rank: all ranks must call the same collectives in the same order."
        if alone is not None
        else f"The line is the last one of your program in the traceback of that rank.{waits}",
        step=None,
        source=alone.kind.source if alone is not None else source,
        evidence={"rank": int(told[1]), "error": said[-1][:400]},
        confidence=0.9,
    )


def _by_rank(call: Call) -> bool:
    """It stands under a condition that reads the rank."""
    return any(block["what"] == "if" and block.get("parting") for block in call.kind.around)
