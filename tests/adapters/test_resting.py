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
    if step == BAD + AFTER:
        break
print(float(loss), [float(p.sum()) for p in net.parameters()], torch.rand(1).item())
"""


def train(foundry: Foundry, folder: Path, bad: int, after: int = 3, **options: Any) -> Ran:
    path = folder / "script.py"
    path.write_text(TRAINING.replace("BAD", str(bad)).replace("AFTER", str(after)).replace("1200", "1800"))
    return foundry.watched(path, folder, **options)


def test_steps_rest_and_the_training_is_the_same(foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rested = train(foundry, tmp_path / "a", 10_000, budget=0.001)
    watched = train(foundry, tmp_path / "b", 10_000, budget=None)
    levels = rested.session["overhead"]["levels"]
    assert levels["rest"] > 500
    assert levels["glance"] > 0
    assert levels["sentinel"] >= 400  # the first five hundred steps are seen
    assert watched.session["overhead"]["levels"]["rest"] == 0
    assert rested.session["steps"] == 1800
    assert rested.out == watched.out
    assert [finding for finding in diagnose(rested.recording) if finding.severity != "info"] == []


@pytest.mark.parametrize("after", [3, 600])
def test_nan_that_appears_amid_a_rest_is_found_with_the_steps_that_it_may_have_begun_in(
    after: int, foundry: Foundry, tmp_path: Path
) -> None:
    """By a glance; or, where the program ends before the next one, by a last look at the parameters."""
    ran = train(foundry, tmp_path, 1100, after, budget=0.001)
    assert ran.session["overhead"]["levels"]["rest"] > 300
    first = diagnose(ran.recording)[0]
    assert first.severity == "error"
    assert first.rule in ("nonfinite", "nan-origin", "nan-in-weights")
    unseen = [event for event in ran.recording.events if event["kind"] == "unseen"]
    hit = ran.recording.hits[0]
    assert 1100 <= hit.moment.step <= 1100 + 256
    if hit.moment.step > 1100:
        (event,) = unseen
        assert event["first"] <= 1100 <= event["last"] < hit.moment.step
        assert "not looked at" in first.advice


OUT = """
import sys, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
own = nn.Module.__call__, nn.Module.__call__.__code__
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
calls = {}

def count(frame, event, argument):
    if event == "call" and "/tensonde/" in frame.f_code.co_filename:
        calls[step] = calls.get(step, 0) + 1

asleep = []
for step in range(1500):
    if step > 1400:
        sys.setprofile(count)
    x = torch.rand(8, 4)
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), x[:, :1])
    loss.backward()
    code = nn.Module.__call__.__code__
    optimizer.step()
    sys.setprofile(None)
    asleep.append("tensonde" not in code.co_filename)
rest = [calls.get(step, 0) for step in range(1402, 1500) if asleep[step] and asleep[step - 1]]
print(sum(asleep), sorted(rest)[len(rest) // 2], own[0] is nn.Module.__call__)
"""


def test_nothing_of_tensonde_is_in_the_way_of_a_step_that_rests(foundry: Foundry, tmp_path: Path) -> None:
    """A few calls to count the step, and torch's own code runs modules; deterministic, unlike a measurement."""
    ran = foundry.watched(OUT, tmp_path, budget=0.001)
    asleep, calls, same = ran.out.split()
    assert int(asleep) > 700
    assert int(calls) <= 8
    assert same == "True"


def test_what_the_user_watches_is_seen_in_every_step(foundry: Foundry, tmp_path: Path) -> None:
    ran = train(foundry, tmp_path, 10_000, budget=0.001, watch=[("**:grad", "norm > 1e9")])
    rank = ran.recording.ranks[0]
    site = next(site.id for site in rank.sites.values() if site.address == "0.weight:grad")
    assert rank.digests([site], columns=["step"]).num_rows == 1800


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


@pytest.mark.parametrize("budget", ["off", "0"])
def test_modules_that_are_never_called_make_no_noise(budget: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNUSED)
    ran = cli("run", "--budget", budget, "script.py", cwd=tmp_path)
    assert "not watched" not in ran.err
    assert "unused" not in ran.err
