"""However a process ends, what the dump accepted is on disk, and what it lost has a name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import Foundry, cli
from tensonde.store.sources import TensorSource, open_source

STAMPS = """
import os, resource, signal, sys, time, torch
from torch import nn

class Stamp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.count = size, 0

    def forward(self, x):
        self.count += 1
        return torch.full((self.size,), float(self.count)) + x.sum() * 0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large, self.weight = Stamp(1000), Stamp(SIZE), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.small(x).sum() + self.large(x).sum() + (self.weight * x).sum()

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(STEPS):
    optimizer.zero_grad()
    net(torch.ones(2)).backward()
    optimizer.step()
    if step == 5:
        END
print("done")
"""


def script(end: str = "pass", *, size: int = 100_000, steps: int = 8) -> str:
    return STAMPS.replace("SIZE", str(size)).replace("STEPS", str(steps)).replace("END", end)


def config(way: str = "async", **common: Any) -> dict[str, Any]:
    return {
        "common_dump_settings": {"dump_mode": 1, "kernels": ["*:out"], **common},
        f"{way}_dump_settings": {"enable": True},
    }


def whole(source: TensorSource) -> list[tuple[int, str]]:
    """What is there, after checking that it is what was computed."""
    for entry in source.entries:
        if entry.name in ("small", "large"):
            values = source.read(entry)
            assert np.all(values == entry.step + 1), entry
    return [(entry.step, entry.name) for entry in source.entries]


@pytest.mark.parametrize("way", ["async", "e2e"])
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('on purpose')", 1),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 128 + signal.SIGTERM),
    ],
    ids=["end", "exit", "exception", "term"],
)
def test_everything_accepted_is_on_disk(foundry: Foundry, tmp_path: Path, end: str, code: int, way: str) -> None:
    ran = foundry.watched(script(end), tmp_path, dump=config(way), strict=False)
    assert ran.code == code, ran.err
    source = open_source(tmp_path / "dump")
    assert source.problems == []
    steps = 8 if end == "pass" else 6
    assert {step for step, _ in whole(source)} == set(range(steps))
    assert (tmp_path / "dump" / "rank_0" / "index.parquet").exists()


def test_sigterm_in_the_middle_of_a_step_keeps_what_came_before(foundry: Foundry, tmp_path: Path) -> None:
    halfway = "def late(module, args):\n            os.kill(os.getpid(), signal.SIGTERM)\n        net.large.register_forward_pre_hook(late)"
    ran = foundry.watched(script(halfway), tmp_path, dump=config(), strict=False)
    assert ran.code == 128 + signal.SIGTERM
    found = whole(open_source(tmp_path / "dump"))
    assert (6, "small") in found
    assert (6, "large") not in found


def test_the_scripts_own_sigterm_handler_stays(foundry: Foundry, tmp_path: Path) -> None:
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); os.kill(os.getpid(), signal.SIGTERM)"
    ran = foundry.watched(script(own), tmp_path, dump=config(), strict=False)
    assert ran.code == 7
    assert {step for step, _ in whole(open_source(tmp_path / "dump"))} == set(range(6))


@pytest.mark.parametrize("way", ["async", "e2e"])
def test_after_kill_9_the_whole_is_readable_and_the_rest_is_named(foundry: Foundry, tmp_path: Path, way: str) -> None:
    ran = foundry.watched(script("os.kill(os.getpid(), signal.SIGKILL)", size=3_000_000), tmp_path, dump=config(way))
    assert ran.code == 128 + signal.SIGKILL
    source = open_source(tmp_path / "dump")
    found = set(whole(source))
    accepted = {(step, name) for step in range(6) for name in ("small", "large")}
    assert found & accepted or way == "async"
    if way == "e2e":
        assert accepted <= found
        assert source.problems == []
    for step, name in accepted - found:
        assert any(f"{name}:out of step {step}" in problem for problem in source.problems), (step, name)
    done = cli("convert", tmp_path / "dump", tmp_path / "out", cwd=tmp_path)
    assert done.code == (0 if found else 2)
    if accepted - found:
        assert "not whole" in done.err


def test_a_full_disk_ends_the_dump_and_not_the_training(foundry: Foundry, tmp_path: Path) -> None:
    limit = "limit = 1_500_000; resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); net.large.size = 10 * net.large.size"
    ran = foundry.watched(script(limit), tmp_path, dump=config(), strict=False)
    assert ran.code == 0
    assert ran.out == "done\n"
    assert ran.err.count("the dump ends at step") == 1
    assert "Traceback" not in ran.err
    source = open_source(tmp_path / "dump")
    found = whole(source)
    assert {step for step, _ in found} >= set(range(6)), "what was there before stays"
    assert any("large:out of step 6" in problem for problem in source.problems)


def test_memory_stays_bounded_and_waiting_is_counted(tmp_path: Path) -> None:
    """A disk that is slower than the training: the pool never grows, and `put` waits."""
    from tensonde.store.dump.layout import claim_rank, create_dump
    from tensonde.store.dump.stepfile import StepFile
    from tensonde.store.dump.writer import DumpWriter, Seen

    class Slow(StepFile):
        def write(self, content: memoryview) -> None:
            time.sleep(0.005)
            super().write(content)

    import tensonde.store.dump.writer as module

    before = module.StepFile
    module.StepFile = Slow  # type: ignore[misc]
    try:
        writer = DumpWriter(claim_rank(create_dump(tmp_path / "d", {}), 0), {}, pool_bytes=16 << 20)
        content = np.arange(20 << 20, dtype=np.uint8)  # larger than the pool
        for step in range(4):
            assert writer.put(Seen("m:out", step, "forward", 0, "module", "M", "uint8", content.shape), content)
        writer.close()
    finally:
        module.StepFile = before  # type: ignore[misc]
    outcome = writer.outcome()
    assert outcome["waits"] > 0
    assert outcome["waited_seconds"] > 0
    source = open_source(tmp_path / "d")
    assert [np.array_equal(source.read(entry), content) for entry in source.entries] == [True] * 4


def test_a_deleted_folder_is_said_once_and_nothing_breaks(foundry: Foundry, tmp_path: Path) -> None:
    import shutil

    gone = f"import shutil; time.sleep(1); shutil.rmtree({str(tmp_path / 'dump')!r})"
    ran = foundry.watched(script(gone), tmp_path, dump=config(), strict=False)
    assert ran.code == 0, ran.err
    assert ran.err.count("the dump ends at step") == 1
    assert "Traceback" not in ran.err
    shutil.rmtree(tmp_path / "dump", ignore_errors=True)


def test_data_workers_that_are_terminated_leave_the_dump_alone(foundry: Foundry, tmp_path: Path) -> None:
    text = """
    import os, signal, torch
    from torch import nn
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
    """
    ran = foundry.watched(text, tmp_path, dump=config())
    assert ran.code == 0, ran.err
    assert {entry.step for entry in open_source(tmp_path / "dump").entries} == {0, 1, 2}


def test_two_ranks_each_dump_their_own(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "import os, torch\nfrom torch import nn\nnet = nn.Linear(2, 2)\n"
        "with torch.no_grad():\n    net.weight.fill_(float(os.environ['RANK']))\n    net.bias.zero_()\n"
        "net(torch.ones(1, 2)).sum().backward()\n"
    )
    (tmp_path / "both.py").write_text(
        "import os, subprocess, sys\n"
        "all = [subprocess.Popen([sys.executable, 'child.py'], env={**os.environ, 'RANK': str(k), 'WORLD_SIZE': '3'}) for k in range(3)]\n"
        "sys.exit(max(p.wait() for p in all))\n"
    )
    settings = {
        "common_dump_settings": {
            "path": str(tmp_path / "d"),
            "dump_mode": 1,
            "kernels": ["net:out"],
            "support_device": [0, 2],
        },
        "e2e_dump_settings": {"enable": True},
    }
    import json

    (tmp_path / "dump.json").write_text(json.dumps(settings))
    ran = cli("run", "both.py", cwd=tmp_path, env={"MINDSPORE_DUMP_CONFIG": str(tmp_path / "dump.json")})
    assert ran.code == 0, ran.err
    source = open_source(tmp_path / "d")
    assert source.ranks == [0, 2]
    assert {entry.rank: source.read(entry).tolist() for entry in source.entries} == {0: [[0, 0]], 2: [[4, 4]]}
    assert "dumped 2 tensors" in ran.err
    again = cli("run", "both.py", cwd=tmp_path, env={"TENSONDE_DUMP_CONFIG": str(tmp_path / "dump.json")})
    assert again.code == 2
    assert "already holds a dump" in again.err
    meant_for_mindspore = cli(
        "run", "both.py", cwd=tmp_path, env={"MINDSPORE_DUMP_CONFIG": str(tmp_path / "dump.json")}
    )
    assert meant_for_mindspore.code == 0
    assert meant_for_mindspore.err.count("nothing is dumped: ") == 1
    assert os.listdir(tmp_path / "d" / "rank_0" / "steps") == ["000000.safetensors"]
