"""What ranks do not get of each other: results thrown away, gradients that change places, places where they never meet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ranks_program import program
from test_ranks import alarms

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.program.results import thrown_away
from tensonde.program.surroundings import surroundings
from tensonde.store.meetings import ABSENT, Meeting, comes, has_met, in_vain, read_meetings
from tensonde.store.reader import Recording

TRAIN = """
for step in range(6):
    i = slice(step * 8, step * 8 + 8)
    loss = loss_of(model(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRAPPED = "model = DDP(net())\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
FLAT = """
model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
params = list(model.parameters())
for step in range(4):
    i = slice(step * 8, step * 8 + 8)
    opt.zero_grad()
    loss_of(model(x[i]), y[i]).backward()
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    at = 0
    for p in ORDER:
        p.grad.copy_(flat[at : at + p.numel()].view_as(p) / world)
        at += p.numel()
    opt.step()
"""
LOADED = """
model = net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    if step == 3:
        model.load_state_dict({k: v + SHIFT if v.is_floating_point() else v for k, v in model.state_dict().items()})
    i = slice(step * 8, step * 8 + 8)
    opt.zero_grad()
    loss_of(model(x[i]), y[i]).backward()
    average(model, world)
    opt.step()
"""
PENALTY = WRAPPED + TRAIN.replace(
    "    opt.zero",
    "    if CONDITION:\n        loss = loss + 0.01 * model.module[3].weight.square().sum()\n    opt.zero",
)
SENT = "seed = torch.tensor([float(VALUE)])\ndist.all_reduce(GIVEN)\n" + WRAPPED + TRAIN
NAMED = {
    "result-thrown-away": (SENT.replace("VALUE", "rank").replace("GIVEN", "seed.clone()"), "dist.all_reduce(seed.clone())"),
    "gathered-into-one-tensor": (
        "parts = [torch.empty(2)] * world\ndist.all_gather(parts, x[0, :2].clone())\n" + WRAPPED + TRAIN,
        "dist.all_gather(parts",
    ),
    "gradients-exchanged": (FLAT.replace("ORDER", "reversed(params)"), "dist.all_reduce(flat)"),
    "replicas-drift by what they load": (LOADED.replace("SHIFT", "0.1 * rank"), "model.load_state_dict"),
    "computed-on-some-ranks": (PENALTY.replace("CONDITION", "rank == 0"), "0.01 * model.module[3]"),
}  # fmt: skip
LEFT_ALONE = {
    "a collective to warm up": SENT.replace("VALUE", "1").replace("GIVEN", "seed.clone()"),
    "a result that is kept": SENT.replace("VALUE", "rank").replace("GIVEN", "seed"),
    "unpacked as it was packed": FLAT.replace("ORDER", "params"),
    "the same state on all ranks": LOADED.replace("SHIFT", "0.1"),
    "a penalty on all ranks": PENALTY.replace("CONDITION", "step > 2"),
}


@pytest.mark.parametrize("case", NAMED)
def test_what_parts_the_ranks_is_named(
    case: str, foundry: Foundry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, code = NAMED[case]
    ran = foundry.watched(program(body), tmp_path)
    assert ran.code == 0, ran.err
    monkeypatch.chdir(ran.cwd)
    found = alarms(ran)
    assert [f.rule for f in found[:1]] == [case.partition(" ")[0]], [(f.rule, f.title) for f in found]
    assert found[0].source is not None
    assert code in found[0].source.code


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_only_looks_like_it_is_left_alone(
    case: str, foundry: Foundry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = foundry.watched(program(LEFT_ALONE[case]), tmp_path)
    assert ran.code == 0, ran.err
    monkeypatch.chdir(ran.cwd)
    assert [(f.rule, f.title) for f in alarms(ran)] == []


@pytest.mark.parametrize(
    ("statement", "function", "expected"),
    [
        ("dist.broadcast_object_list([order], src=0)", "broadcast_object_list", True),
        ("dist.all_reduce(torch.tensor(loss).cuda())", "all_reduce", True),
        ("dist.all_reduce(loss / world)", "all_reduce", True),
        ("dist.all_reduce(loss)", "all_reduce", False),
        ("dist.all_reduce(loss.detach())", "all_reduce", False),
        ("dist.all_reduce(flat.view(-1))", "all_reduce", False),
        ("work = dist.all_reduce(torch.tensor(loss), async_op=True)", "all_reduce", False),
        ("dist.all_reduce(torch.as_tensor(array))", "all_reduce", False),
    ],
)
def test_what_is_made_for_the_call(statement: str, function: str, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"def main():\n    {statement}\n")
    assert thrown_away(str(path), 2, function) is expected


def test_a_condition_on_the_environment_reads_the_rank(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        'def main():\n    if os.environ["RANK"] == "0":\n        dist.barrier()\n    if os.environ["MODE"]:\n        dist.barrier()\n'
    )
    assert [bool(surroundings(str(path), line)[-1]["parting"]) for line in (3, 5)] == [True, False]


NOW = 1000.0


def met(rank: int, place: str = "127.0.0.1:1", size: int = 2, *, ago: float = 7.0) -> Meeting:
    return Meeting(rank, size, place, "train.py", 3, NOW - ago)


@pytest.mark.parametrize(
    ("meetings", "said"),
    [
        ([met(0), met(1, "127.0.0.1:2")], "127.0.0.1:1, and rank 1 does so at 127.0.0.1:2"),
        ([met(0), met(1, size=4)], "for 2 ranks, and rank 1 for 4"),
        ([met(0), met(0)], "both say that they are rank 0"),
        ([met(0, ago=ABSENT + 1)], "rank 1 did not come there"),
        ([met(0)], None),
        ([met(0, ago=1.0), met(1, "127.0.0.1:2", ago=1.0)], None),
        ([met(0, ago=60.0), met(1, ago=60.0)], None),
        ([], None),
    ],
)  # fmt: skip
def test_why_processes_do_not_meet(meetings: list[Meeting], said: str | None) -> None:
    found = in_vain(meetings, now=NOW)
    assert found is None if said is None else found is not None and said in found


def test_who_has_met_is_not_waited_for(tmp_path: Path) -> None:
    comes(tmp_path, met(1))
    (tmp_path / "meeting-0.json").write_text("{")
    assert [one.rank for one in read_meetings(tmp_path)] == [1]
    has_met(tmp_path)
    assert read_meetings(tmp_path) == []


PORTS = """
import os, socket, torch
from datetime import timedelta
import torch.distributed as dist, torch.multiprocessing as mp

def worker(rank):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=12))

if __name__ == "__main__":
    mp.start_processes(worker, nprocs=2, start_method="fork")
"""


def test_ranks_that_never_meet_are_told_of_while_they_wait(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PORTS)
    command = [sys.executable, "-m", "tensonde", "run", "--record", "run", "train.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    told = [line for line in ran.stderr.splitlines() if line.startswith("tensonde: rank 0 waits in init_process_group")]
    assert len(told) == 1
    assert "they never meet" in told[0]
    found = diagnose(Recording.open(tmp_path / "run"))[0]
    assert found.rule == "rank-failed-early"
    assert "they never meet" in found.title
