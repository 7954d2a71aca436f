"""Steps too short for the sentinel: most of them rest, nothing changes for the training, and NaN is still found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch import Foundry, Ran, cli
from tensonde.diagnose.diagnose import diagnose

TRAINING = """
import sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(1200):
    x = torch.rand(8, 4)
    if step >= BAD:
        x = x - 1
    loss = (net(x).squeeze(1) - torch.sqrt(x.sum(1))).pow(2).mean()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == BAD + 3:
        break
print(float(loss), [float(p.sum()) for p in net.parameters()], torch.rand(1).item())
"""


def train(foundry: Foundry, folder: Path, bad: int, **options: Any) -> Ran:
    path = folder / "script.py"
    path.write_text(TRAINING.replace("BAD", str(bad)))
    return foundry.watched(path, folder, **options)


def test_steps_rest_and_the_training_is_the_same(foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rested = train(foundry, tmp_path / "a", 10_000, budget=0.001)
    watched = train(foundry, tmp_path / "b", 10_000, budget=None)
    levels = rested.session["overhead"]["levels"]
    assert levels["rest"] > 500
    assert levels["sentinel"] > 500 + levels["rest"] // 64 - 2
    assert watched.session["overhead"]["levels"]["rest"] == 0
    assert rested.session["steps"] == 1200
    assert rested.out == watched.out
    assert [finding for finding in diagnose(rested.recording) if finding.severity != "info"] == []


def test_a_bad_loss_in_a_step_that_rests_is_found(foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, tmp_path, 1100, budget=0.001)
    assert ran.session["overhead"]["levels"]["rest"] > 300
    first = diagnose(ran.recording)[0]
    assert first.rule == "nan-origin"
    assert first.op == "sqrt"
    assert "# HERE" in first.source.code
    hit = ran.recording.hits[0]
    assert (hit.site, hit.moment.step) == ("loss:value", 1100)


def test_what_the_user_watches_is_seen_in_every_step(foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, tmp_path, 10_000, budget=0.001, watch=[("**:grad", "norm > 1e9")])
    rank = ran.recording.ranks[0]
    site = next(site.id for site in rank.sites.values() if site.address == "0.weight:grad")
    assert rank.digests([site], columns=["step"]).num_rows == 1200


UNUSED = """
import torch
from torch import nn

model = nn.ModuleDict({"used": nn.Linear(4, 1), "unused": nn.Linear(4, 1)})
optimizer = torch.optim.SGD(model["used"].parameters(), lr=0.1)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = model

    def forward(self, x):
        return self.parts["used"](x)


whole = Whole()
for _ in range(3):
    optimizer.zero_grad()
    whole(torch.ones(2, 4)).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("budget", "told"), [("off", True), ("0", False)])
def test_modules_that_nobody_looked_at_are_not_said_to_be_unused(budget: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNUSED)
    ran = cli("run", "--budget", budget, "script.py", cwd=tmp_path)
    assert ("not watched: parts.unused (was never called)" in ran.err) == told
    assert ("not watched" in ran.err) == told
