"""Several `tensonde run` that a launcher has started write into one recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tensonde.errors import UsageError
from tensonde.launch.joining import join_or_create, launcher_id
from tensonde.store.claim import note_exit
from tensonde.store.reader import Recording

SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
MANIFEST = {"script": "train.py", "argv": []}


def test_ids_of_launchers() -> None:
    assert launcher_id(("train.py",), {}) is None
    assert launcher_id(("train.py",), SLURM) == "slurm-77.0"
    assert launcher_id(("train.py",), {**SLURM, "SLURM_RESTART_COUNT": "2"}) == "slurm-77.0-restart2"
    assert launcher_id(("train.py",), {**SLURM, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert launcher_id(("train.py",), {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4"}) is None  # the batch script itself
    elastic = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    assert launcher_id(("train.py",), elastic) == "torchrun-none-29500"
    assert launcher_id(("train.py",), {**elastic, "TORCHELASTIC_RUN_ID": "mine"}) == "torchrun-mine"
    nodes = ("torchrun", "--nnodes=1:4", "--nproc-per-node", "2", "--rdzv_id", "9", "train.py")
    assert launcher_id(nodes, {}) == "torchrun-9"
    assert launcher_id(("-m", "torch.distributed.run", "--nnodes", "2", "--rdzv-id=9", "train.py"), {}) == "torchrun-9"
    assert launcher_id(("torchrun", "--nproc-per-node", "2", "--rdzv-id", "9", "train.py"), {}) is None
    assert launcher_id(("train.py", "--nnodes", "2", "--rdzv-id", "9"), {}) is None


def test_one_makes_it_the_others_join(tmp_path: Path) -> None:
    places = []
    threads = [
        threading.Thread(target=lambda: places.append(join_or_create(tmp_path, None, MANIFEST, "slurm-1.0")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({place.folder for place in places}) == 1
    assert sum(place.is_first for place in places) == 1


def test_an_ended_recording_is_not_joined(tmp_path: Path) -> None:
    first = join_or_create(tmp_path, None, MANIFEST, "torchrun-9")
    note_exit(first.folder, 0)
    second = join_or_create(tmp_path, None, MANIFEST, "torchrun-9")
    assert second.is_first
    assert second.folder.name == f"{first.folder.name}-2"
    named = join_or_create(tmp_path, "mine", MANIFEST, "torchrun-9")
    assert not join_or_create(tmp_path, "mine", MANIFEST, "torchrun-9").is_first
    with pytest.raises(UsageError, match="already exists"):
        join_or_create(tmp_path, "mine", MANIFEST, "torchrun-10")
    note_exit(named.folder, 0)
    with pytest.raises(UsageError, match="already exists"):
        join_or_create(tmp_path, "mine", MANIFEST, "torchrun-9")


def test_the_first_waits_for_the_others(tmp_path: Path) -> None:
    first = join_or_create(tmp_path, "a", MANIFEST, "slurm-1.0")
    other = join_or_create(tmp_path, "a", MANIFEST, "slurm-1.0")
    threading.Timer(0.3, other.ended, [4]).start()
    assert first.wait_for_others(0) == 4
    assert first.wait_for_others(5) == 5


TRAIN = """
import os, sys, torch, torch.nn as nn, torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{os.getcwd()}/meet")
torch.manual_seed(rank)
model = nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    loss = model(torch.randn(8, 4)).square().mean()
    opt.zero_grad(); loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad); p.grad /= 2
    opt.step()
dist.destroy_process_group()
sys.exit(3 * rank)
"""


def test_two_supervisors_one_verdict(tmp_path: Path) -> None:
    """One recording with both ranks; what is wrong between them is found, and told by one of the two commands."""
    (tmp_path / "train.py").write_text(TRAIN)
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "tensonde", "run", "--report", f"report{rank}.json", "train.py"],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, **SLURM, "SLURM_PROCID": str(rank), "RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [command.communicate(timeout=120)[1] for command in commands]
    assert [command.returncode for command in commands] == [0, 3]
    (run,) = (tmp_path / ".tensonde" / "runs").iterdir()
    recording = Recording.open(run)
    assert [rank.name for rank in recording.ranks] == ["rank0", "rank1"]
    assert recording.manifest["exit_code"] == 3
    found = [
        [one["rule"] for one in json.loads((tmp_path / f"report{k}.json").read_text())["findings"]] for k in range(2)
    ]
    assert sorted("ranks-start-differently" in rules for rules in found) == [False, True]
    assert sum("is recorded in" in text for text in said) == 1
