"""Two ranks of one training, under torchrun: a pause stops both at one step, and none waits for the other in a collective."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hub_drive import LONG, Timeline, hub

from launch import environment
from tensonde.store.reader import Recording

SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step = 0
while True:
    optimizer.zero_grad()
    model(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()
    step += 1
    end = torch.tensor([float(os.path.exists("end"))])
    dist.all_reduce(end)
    if end.item():
        break
dist.destroy_process_group()
"""


@pytest.mark.timeout(240)
def test_a_pause_of_all_ranks_is_at_one_step(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with hub(tmp_path) as there, there.client.live() as live:
        run = subprocess.Popen(
            [sys.executable, "-m", "tensonde", "run", "--record", "out", "torchrun", "--nproc-per-node", "2", "--master-port", "0",
             "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "script.py"],
            cwd=tmp_path, env=environment({"TENSONDE_HUB": there.address.link, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            timeline = Timeline(live)
            id, names = timeline.connected(ranks=2)
            assert names == ["rank0", "rank1"]
            for name in names:
                live.subscribe(id, name)
                timeline.state("running")
            for _ in range(3):
                assert there.client.post(f"/runs/{id}/control", {"action": "pause"})["accepted"]
                stops = stopped_all(timeline, names)
                assert len(set(stops.values())) == 1, stops
                assert there.client.place(id, "rank1").get("tensor", address="module.weight:value")["shape"] == [4, 8]
                there.client.post(f"/runs/{id}/control", {"action": "step"})
                after = stopped_all(timeline, names)
                assert set(after.values()) == {next(iter(stops.values())) + 1}
                there.client.post(f"/runs/{id}/control", {"action": "continue"})
            (tmp_path / "end").touch()
            _, err = run.communicate(timeout=LONG)
            assert run.returncode == 0, err
        finally:
            run.kill()
    assert [rank.state for rank in Recording.open(tmp_path / "out").ranks] == ["finished", "finished"]


def stopped_all(timeline: Timeline, names: list[str]) -> dict[str, int]:
    """Where each rank is, once all have stopped; a rank that moves on with the others says so anew."""
    at: dict[str, int] = {}

    def note(message: dict[str, object]) -> bool:
        if message["type"] == "stop":
            at[str(message["rank"])] = message["stop"]["step"]  # type: ignore[index]
        return len(at) == len(names) and len(set(at.values())) == 1

    timeline.until(note)
    return at
