"""One run of the ranks that several machines have recorded apart."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.store.claim import create_run
from tensonde.store.format import FINDINGS
from tensonde.store.reader import Rank, Recording
from tensonde.store.standing import members


def merge(target: Path, parts: Sequence[Path]) -> list[Rank]:
    """Copies the ranks of all parts to a new run at `target`, and returns them there; the parts stay. Raises UsageError.

    Findings are left out: what the ranks say together is another diagnosis.
    """
    opened = [Recording.open(part) for part in parts]
    chosen: dict[int, tuple[Recording, Rank]] = {}
    for one in opened:
        if one.live:
            raise UsageError(f"{one.path} is still being recorded; merge it when the training has ended.")
        for rank in members(one.ranks):
            if rank.rank in chosen:
                other = chosen[rank.rank][0].path
                raise UsageError(
                    f"rank {rank.rank} is in both {other} and {one.path}; are these parts of one training? Each rank may come once."
                )
            chosen[rank.rank] = (one, rank)
    worlds = {size for _, rank in chosen.values() if (size := rank.session.get("world_size"))}
    if len(worlds) > 1:
        raise UsageError(f"the parts are of trainings with {' and '.join(map(str, sorted(worlds)))} ranks, not of one.")
    first = opened[0].manifest
    kept: dict[str, Any] = {name: first[name] for name in ("script", "argv") if name in first}
    started = min((str(one.manifest["started"]) for one in opened if one.manifest.get("started")), default="")
    codes = [code for one in opened if isinstance(code := one.manifest.get("exit_code"), int)]
    more = {"exit_code": max(codes)} if codes else {}
    made = create_run(
        target.parent, target.name, {**kept, "started": started, "merged": [one.name for one in opened], **more}
    )
    for number, (_, rank) in sorted(chosen.items()):
        shutil.copytree(rank.folder, made / f"rank{number}", ignore=shutil.ignore_patterns(FINDINGS))
    return Recording.open(made).ranks
