"""Tools that start programs and steer live trainings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_drive import Agent, Refused, over_stdio

from launch import skip_if_quick

TRAINING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).square().mean()
    loss.backward()
    optimizer.step()
print("done", step)
"""
FOREVER = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.1)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agent")
    (made / "project").mkdir()
    (made / "project" / "train.py").write_text(TRAINING)
    (made / "project" / "forever.py").write_text(FOREVER)
    (made / "outside.py").write_text(TRAINING)
    (made / "project" / "link.py").symlink_to(made / "outside.py")
    return made / "project"


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[Agent]:
    skip_if_quick()
    with over_stdio(folder, "--allow-run") as made:
        yield made


@pytest.mark.parametrize("script", ["../outside.py", "link.py", "/etc/passwd", "nothing.py", "."])
def test_only_scripts_of_the_folder_are_run(agent: Agent, folder: Path, script: str) -> None:
    for tool in ("run_script", "check_script", "start_script"):
        with pytest.raises(Refused, match=r"outside of|there is no script"):
            agent.text(tool, script=script)
    assert not (folder / ".tensonde").exists() or not list(folder.glob(".tensonde/runs/outside*"))


def test_a_program_that_takes_too_long_is_ended(agent: Agent) -> None:
    answer = agent.ask("run_script", script="forever.py", timeout=3)
    assert answer["stopped"] == "after 3 s, as asked"
    assert "begun" in answer["output"]


def test_a_wrong_watchpoint_is_refused_in_the_commands_own_words(agent: Agent) -> None:
    with pytest.raises(Refused, match="nrm"):
        agent.text("run_script", script="train.py", args=["2"], watch=["**:grad nrm > 3"])


def test_a_live_training_is_stopped_stepped_looked_into_and_ended(agent: Agent, folder: Path) -> None:
    begun = agent.ask("start_script", script="train.py", args=["1000000"])
    run = begun["run"]
    assert begun["answer"]["state"] == "stopped"
    made = agent.ask("set_breakpoint", sites="2:out", run=run)["answer"]
    at = agent.ask("control", action="continue", run=run)["answer"]
    assert at["stop"]["site"] == "2:out"
    assert at["stop"]["source"]["line"] == 10
    known = {one["address"] for one in agent.ask("tensors", run=run, max_tokens=20_000)["answer"]}
    assert "2:out" in known
    tile = agent.ask("tensor", address="2.weight:value", rows="0:2", cols="0:2", run=run)["answer"]
    assert len(tile["values"]) == 2
    assert "2:out" in " ".join(agent.ask("debugger", line="info breakpoints", run=run)["answer"]["output"])
    agent.ask("remove_breakpoint", id=made["id"], run=run)
    stepped = agent.ask("control", action="step", run=run)["answer"]
    assert stepped["state"] == "stopped"
    assert stepped["stop"]["step"] > at["stop"]["step"] or stepped["stop"]["phase"] != at["stop"]["phase"]

    agent.ask("control", action="continue", run=run, wait=0)
    with pytest.raises(Refused, match="pause it first"):  # as somebody hears who continues what another has continued
        agent.text("control", action="step", run=run)
    watched = agent.ask("watch", sites="**:grad", condition="norm >= 0", action="pause", run=run)["answer"]
    hit = agent.ask("state", wait=30, run=run)["answer"]
    assert hit["state"] == "stopped"
    assert hit["stop"]["hits"][0]["watchpoint"] == watched["id"]
    agent.ask("unwatch", id=watched["id"], run=run)

    agent.ask("control", action="terminate", run=run, wait=0)
    if _stopped(agent, run):
        with contextlib.suppress(Refused):  # it may have ended since
            agent.ask("control", action="continue", run=run)
    ended = agent.ask("state", wait=30, run=run)["answer"]
    assert ended["state"] == "terminated"
    assert {path.name for path in folder.iterdir()} <= {
        "train.py", "forever.py", "link.py", ".tensonde", "tensonde", "__pycache__"
    }, "nothing is written outside of a run's folder"  # fmt: skip


def _stopped(agent: Agent, run: str) -> bool:
    return bool(agent.ask("state", run=run)["answer"]["state"] == "stopped")


@pytest.mark.slow
def test_two_steps_are_checked_and_nothing_is_kept(agent: Agent, folder: Path) -> None:
    before = sorted(folder.glob(".tensonde/runs/*"))
    answer = agent.ask("check_script", script="train.py", args=["3"])
    assert answer["kind"] == "check"
    assert all(line["state"] != "problem" for line in answer["answer"]["checks"])
    assert sorted(folder.glob(".tensonde/runs/*")) == before


@pytest.mark.slow
def test_runs_are_compared(agent: Agent) -> None:
    one = agent.ask("run_script", script="train.py", args=["3"])["run"]
    other = agent.ask("run_script", script="train.py", args=["3"])["run"]
    verdict = agent.ask("compare_runs", one=one, other=other)
    assert verdict["answer"]["verdict"] == "equivalent"
    listed = [run["name"] for run in agent.ask("list_runs")["answer"]]
    assert listed[:2] == [other, one]
