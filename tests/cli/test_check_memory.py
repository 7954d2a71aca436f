"""`tensonde check --memory` on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from launch import cli
from tensonde.server import models
from tensonde.server.app import create_app
from tensonde.server.hub import Hub
from tensonde.server.library import Library

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(net.parameters())
total = 0
for step in range(8):
    loss = nn.functional.cross_entropy(net(torch.randn(256, 32)), torch.randint(0, 4, (256,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = total + net(torch.randn(256, 32)).mean()  # KEPT
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def test_what_is_taken_and_what_would_fit(script: Path) -> None:
    ran = cli("check", "--memory", "--json", "--limit", "400K", "train.py", cwd=script.parent)
    assert ran.code == 1, ran.err
    found = json.loads(ran.out)
    parameters = 4 * (32 * 64 + 64 + 64 * 4 + 4)
    assert found["device"] == "cpu"
    assert found["uses"]["parameters"] == parameters
    assert found["uses"]["optimizer"] == pytest.approx(2 * parameters, abs=64)  # and the numbers of their steps
    assert found["peak"] == sum(found["uses"].values())
    assert found["batch"] == 256
    assert found["fits"] is False
    assert 0 < found["largest_batch"] < 256
    assert found["growth"] > 256 * 64 * 4, "what the first layer gives, at the least"
    (keeper,) = found["keepers"]
    assert keeper["name"] == "total"
    assert "# KEPT" in keeper["line"]["code"]


def test_it_is_said_in_words(script: Path) -> None:
    ran = cli("check", "--memory", "--limit", "1G", "train.py", cwd=script.parent)
    assert ran.code == 0, ran.err
    assert "peak: " in ran.out
    assert "activations" in ran.out
    assert "every step leaves" in ran.out
    assert "`total` holds" in ran.out
    assert "it fits into 1.0 GiB" in ran.out


def test_a_limit_needs_the_memory(script: Path) -> None:
    assert cli("check", "--limit", "1G", "train.py", cwd=script.parent).code == 2


def test_the_course_of_the_step_is_served(script: Path) -> None:
    ran = cli("check", "--memory", "--record", "out", "train.py", cwd=script.parent)
    assert ran.code == 0, ran.err
    web = TestClient(create_app(Hub(Library([script.parent / "out"]))))
    (run,) = web.get("/api/runs").json()
    found = models.Memory.model_validate_json(web.get(f"/api/runs/{run['id']}/rank0/memory").content)
    course = found.course
    assert course is not None
    assert 0 < len(course.at) <= 400
    assert course.at == sorted(set(course.at))
    assert course.at[-1] < course.length
    used = [sum(levels) for levels in zip(*course.uses.values(), strict=True)]
    assert max(used) == used[course.peak] == found.peak
    assert {use: levels[course.peak] for use, levels in course.uses.items() if levels[course.peak]} == found.uses
    computed = [
        sum(levels)
        for levels in zip(
            *(course.uses[use] for use in ("activations", "workspace") if use in course.uses), strict=True
        )
    ]
    assert [sum(levels) for levels in zip(*course.modules.values(), strict=True)] == computed
    assert {"0", "1", "2"} >= {name.rpartition(".")[2] for name in course.modules if name} > set()
    phases = [course.places[place].phase for place in course.place]
    assert phases.index("forward") < phases.index("backward") < len(phases) - 1 - phases[::-1].index("optimizer")


def test_a_batch_that_the_step_picks_itself(script: Path) -> None:
    picked = SCRIPT.replace("for step", "data, labels = torch.randn(1024, 32), torch.randint(0, 4, (1024,))\nfor step")
    picked = picked.replace("torch.randn(256, 32)), torch.randint(0, 4, (256,))", "data[rows]), labels[rows]", 1)
    picked = picked.replace("    loss =", "    rows = torch.randperm(1024)[:256]\n    loss =").replace(
        "    total = total", "    #"
    )
    script.write_text(picked)
    found = json.loads(cli("check", "--memory", "--json", "train.py", cwd=script.parent).out)
    assert found["batch"] == 256, found["why"]
    assert max(each for _, each in found["envelope"]) >= 4 * (64 + 64), "what each sample takes in the first layers"
