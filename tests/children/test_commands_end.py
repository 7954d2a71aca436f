"""Every command ends on SIGINT and on SIGTERM, with all that it has started; a signal reaches the script once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from launch import environment
from tensonde.launch.bystander import Bystander
from tensonde.launch.processes import below, kill_tree

LONG = 120
TRAIN = """
import signal, sys, time
if "--stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)
if "--counting" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *a: open("signals", "a").write("x"))
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    torch.set_num_threads(1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = 2 if "--workers" in sys.argv else 0
    while True:
        for (x,) in DataLoader(TensorDataset(torch.randn(400, 4)), batch_size=4, num_workers=workers):
            optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step()
            open("going", "a").write("x")
            time.sleep(0.02)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    (folder / "going").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tensonde", *words], cwd=folder, env=environment(), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(folder / "stderr").open("w"), text=True,
    )  # fmt: skip
    until = time.monotonic() + LONG
    while not (folder / "going").exists():
        assert process.poll() is None, (folder / "stderr").read_text()
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


COMMANDS = {
    "run": ["run", "train.py", "--workers"],
    "torchrun": ["run", "torchrun", "--nproc-per-node", "2", "--master-port", "29641", "train.py"],
    "debug": ["debug", "train.py"],
    "check": ["check", "--steps", "100000", "train.py"],
    "compare": ["compare", "--steps", "100000", "--run", "train.py --stubborn", "--run", "train.py"],
    "tune": ["tune", "train.py", "--param", "lr=log:1e-3:1", "--jobs", "2"],
}


@pytest.mark.parametrize(
    ("name", "number"),
    [("run", 15), ("torchrun", 15), ("debug", 2), ("check", 2), ("compare", 15), ("tune", 15), ("tune", 2)],
)
def test_a_command_ends_with_all_that_it_started(name: str, number: int, tmp_path: Path) -> None:
    if name == "tune":
        pytest.importorskip("optuna")
    process = begin(tmp_path, *COMMANDS[name])
    try:
        started = below(process.pid)
        assert started
        process.send_signal(number)
        code = process.wait(LONG)
        until = time.monotonic() + LONG
        while any(map(alive, started)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not [pid for pid in started if alive(pid)]
        assert code == (1 if name == "torchrun" else 128 + number), (tmp_path / "stderr").read_text()
    finally:
        if process.poll() is None:
            kill_tree(process.pid)


def test_a_signal_to_the_group_reaches_the_script_once(tmp_path: Path) -> None:
    """As `timeout` and schedulers send it; one to the command alone is passed on."""
    process = begin(tmp_path, "run", "train.py", "--counting")
    try:
        for expected, send in ((1, os.killpg), (2, os.kill)):
            send(process.pid, signal.SIGTERM)
            until = time.monotonic() + LONG
            while (tmp_path / "signals").stat().st_size < expected if (tmp_path / "signals").exists() else True:
                assert time.monotonic() < until
                time.sleep(0.05)
            time.sleep(0.6)
            assert (tmp_path / "signals").stat().st_size == expected
    finally:
        kill_tree(process.pid)
        process.wait()


def test_the_hub_ends(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-m", "tensonde", "ui", "--no-open"], cwd=tmp_path,
            env=environment({"XDG_RUNTIME_DIR": str(tmp_path)}), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        assert "the UI is at" in process.stderr.readline()
        process.send_signal(number)
        process.communicate(timeout=LONG)
        assert process.returncode in (128 + number, -number, 0)


def test_a_bystander_ends_with_its_owner() -> None:
    code = (
        "import os, signal; from tensonde.launch.bystander import Bystander; b = Bystander([signal.SIGUSR1]); "
        "print(b._pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    pid, until = int(done.stdout), time.monotonic() + LONG
    while alive(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_bystander_hears_what_the_group_gets() -> None:
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda *a: heard.append(1))
    bystander = Bystander([signal.SIGUSR2])
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert not bystander.saw(signal.SIGUSR2)
        os.kill(bystander._pid, signal.SIGUSR2)
        assert bystander.saw(signal.SIGUSR2)
        assert not bystander.saw(signal.SIGUSR2)
        assert heard == [1]
    finally:
        bystander.close()
        signal.signal(signal.SIGUSR2, before)
