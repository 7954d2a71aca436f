"""A person at a terminal: completion, Ctrl-C, Ctrl-D, confirmation, history; on a real pseudo-terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from debug_drive import environment

LONG = """
import time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    loss = model(torch.randn(16, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 20:
        print("tick", "tock", flush=True)
    time.sleep(SLEEP)
"""
PROMPT = r"\(tensonde\)"


@pytest.fixture
def child(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[pexpect.spawn]:
    script = tmp_path / "long.py"
    script.write_text(LONG.replace("SLEEP", getattr(request, "param", "0.002")))
    spawned = pexpect.spawn(
        sys.executable, ["-m", "tensonde", "debug", str(script)],
        cwd=str(tmp_path), encoding="utf-8", timeout=60,
        env=environment(TERM="xterm", XDG_STATE_HOME=str(tmp_path / "state")), dimensions=(40, 140),
    )  # fmt: skip
    spawned.expect("the training begins")
    spawned.expect(PROMPT)
    yield spawned
    spawned.close(force=True)


def run_on(child: pexpect.spawn) -> None:
    """What the training prints shows that it runs, and that the prompt has given the terminal back."""
    child.send("continue\r")
    child.expect("tick tock")


def test_tab_completes_commands_and_sites(child: pexpect.spawn, tmp_path: Path) -> None:
    child.send("brea\t2:gra\t\r")
    child.expect("breakpoint 1 at 2:grad")
    child.expect(PROMPT)
    child.send("cont\t\r")
    child.expect("backward · 2:grad")
    child.expect(PROMPT)
    assert "+break 2:grad" in (tmp_path / "state" / "tensonde" / "history").read_text()


def test_ctrl_c_pauses_and_ctrl_d_detaches(child: pexpect.spawn) -> None:
    run_on(child)
    child.sendintr()
    child.expect("pausing at the next permitted point")
    child.expect("● paused")
    child.expect(PROMPT)
    child.send("no such command")
    child.send("\x03")  # clears the line
    child.expect(PROMPT)
    child.send("where\r")
    child.expect("Python stack")
    child.expect(PROMPT)
    run_on(child)
    child.sendintr()
    child.expect("● paused")
    child.expect(PROMPT)
    child.send("\x04")
    child.expect("detached")
    child.expect("tick tock")
    child.sendintr()  # Python's own handler again
    child.expect("KeyboardInterrupt")
    child.expect(pexpect.EOF)


@pytest.mark.parametrize("child", ["0.002 if step % 50 != 20 else 90"], indirect=True)
def test_ctrl_c_twice_interrupts_where_no_permitted_point_comes(child: pexpect.spawn) -> None:
    run_on(child)
    child.sendintr()
    child.expect("pausing at the next permitted point")
    child.sendintr()
    child.expect("KeyboardInterrupt")
    child.expect(pexpect.EOF)


def test_ctrl_c_in_pdb_stays_in_pdb(child: pexpect.spawn) -> None:
    child.send("pdb\r")
    child.expect(r"\(Pdb\)")
    child.send("print('fast', 'asleep', flush=True); time.sleep(90)\r")
    child.expect("fast asleep")
    child.sendintr()
    child.expect("KeyboardInterrupt")
    child.expect(r"\(Pdb\)")
    child.send("c\r")
    child.expect("tick tock")
    child.sendintr()
    child.expect("● paused")


def test_quit_asks_first(child: pexpect.spawn) -> None:
    child.send("quit\r")
    child.expect(r"end the training at step 0\? \(y or n\)")
    child.send("n\r")
    child.expect("still here")
    child.expect(PROMPT)
    child.send("quit\r")
    child.expect(r"\(y or n\)")
    child.send("y\r")
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0
