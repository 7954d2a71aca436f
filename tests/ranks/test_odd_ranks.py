"""Ranks that are not what the others are: without Tensonde, of another script, started anew. The training goes on as it would without Tensonde."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.store.reader import Rank, Recording
from tensonde.store.standing import members, standings_of

RANK = """
import os, sys
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
kept = []
def train(rank, meet, lost=False, world=2):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/{meet}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(rank))
    for step in range(8):
        if lost and step == 3:
            raise ValueError("lost")
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    with open(f"weights{rank}", "w") as file:
        file.write(" ".join(v.hex() for p in model.parameters() for v in p.detach().double().flatten().tolist()))
    kept.append(model)
    dist.destroy_process_group()
"""
WITHOUT = (
    RANK
    + """
import subprocess
if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(1, "meet")
        # A thread of gloo that still holds a tensor asks for the GIL while the interpreter ends. Python then ends the thread, and C++ aborts.
        os._exit(0)
    else:
        bare = {name: value for name, value in os.environ.items() if not name.startswith("TENSONDE") and name != "PYTHONPATH"}
        other = subprocess.Popen([sys.executable, "other.py", "1"], env=bare)
        train(0, "meet")
        sys.exit(other.wait())
"""
)
ANEW = (
    RANK
    + """
import torch.multiprocessing as mp
def worker(rank, generation):
    train(rank, f"meet{generation}", generation == 0 and rank == 1, WORLDS[generation])
WORLDS = [2, 3]
if __name__ == "__main__":
    for generation in range(2):
        try:
            mp.start_processes(worker, args=(generation,), nprocs=WORLDS[generation], start_method="fork")
        except mp.ProcessRaisedException:
            pass
"""
)


def test_one_rank_without_tensonde_and_of_another_script(foundry: Foundry, tmp_path: Path) -> None:
    for name in ("bare", "watched"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "other.py").write_text(WITHOUT)
    bare = foundry.bare(WITHOUT, tmp_path / "bare")
    ran = foundry.watched(WITHOUT, tmp_path / "watched")
    assert bare.code == ran.code == 0, bare.err + ran.err
    for rank in (0, 1):
        assert (ran.cwd / f"weights{rank}").read_text() == (bare.cwd / f"weights{rank}").read_text()
    assert [f.title for f in diagnose(ran.recording) if f.severity != "info"] == []
    assert [rank.rank for rank in ran.recording.ranks] == [0]
    assert [f.title for f in diagnose(ran.recording) if f.rule == "ranks-missing"] == [
        "1 of 2 ranks recorded nothing: rank 1"
    ]


def test_ranks_that_are_started_anew(foundry: Foundry, tmp_path: Path) -> None:
    """As an elastic launcher does, here with one rank more. What ended the first ones is told; those that came after are not mixed up with
    them. Then one of them is of a newer Tensonde, which is said once."""
    for name in ("bare", "watched"):
        (tmp_path / name).mkdir()
    bare = foundry.bare(ANEW, tmp_path / "bare")
    ran = foundry.watched(ANEW, tmp_path / "watched")
    assert bare.code == ran.code == 0, bare.err + ran.err
    for rank in (0, 1, 2):
        assert (ran.cwd / f"weights{rank}").read_text() == (bare.cwd / f"weights{rank}").read_text()
    assert len(ran.recording.ranks) > 3
    assert sorted((one.rank, one.step) for one in standings_of(ran.recording.ranks)) == [(0, 8), (1, 8), (2, 8)]
    found = [f for f in diagnose(ran.recording) if f.severity != "info"]
    assert not [
        f.rule for f in found if f.rule in ("ranks-stuck", "replicas-drift", "collectives-differ", "uneven-batches")
    ]
    last = next(rank for rank in ran.recording.ranks if rank.rank == 2)
    session = json.loads((last.folder / "session.json").read_text())
    (last.folder / "session.json").write_text(json.dumps({**session, "format": 99}))
    mixed = Recording.open(ran.recording.path)
    assert [f.rule for f in diagnose(mixed) if f.severity != "info"] == [f.rule for f in found]
    assert [
        text for text in mixed.problems if "is of format 99" in text and "upgrade Tensonde" in text
    ] == mixed.problems
    assert len(mixed.problems) == 1


def test_a_world_that_shrinks() -> None:
    """The last ranks that were started count, and no rank of those before that they have no match for."""

    def rank(number: int, world: int, started: str) -> SimpleNamespace:
        return SimpleNamespace(rank=number, session={"world_size": world, "started": started})

    first = [rank(k, 4, "2026-01-01T10:00:00") for k in range(4)]
    then = [rank(k, 2, "2026-01-01T10:05:00") for k in range(2)]
    launcher = rank(0, 1, "2026-01-01T09:59:00")
    assert members(cast(list[Rank], [launcher, *first, *then])) == then
