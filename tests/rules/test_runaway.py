"""A weight that runs away is announced before the loss shows it; the finding names where it began."""

from __future__ import annotations

import math
from pathlib import Path

from launch import Foundry
from tensonde.diagnose.analysis.divergence import left_range
from tensonde.diagnose.diagnose import diagnose

SCRIPT = """
    import torch
    from torch import nn
    import torch.nn.functional as F

    torch.manual_seed(0)
    x = torch.randn(512, 16) * torch.linspace(0.2, 2.0, 16)
    t = torch.sin(x @ torch.randn(16, 1))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.{optimizer}
    for step in range(300):
        optimizer.param_groups[0]["lr"] = {rate}
        rows = torch.randint(0, 512, (64,))
        loss = F.mse_loss(model(x[rows]), t[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not loss < 1e3:
            break
"""
SGD = "SGD(model.parameters(), lr=0.02)"
ADAM = "Adam(model.parameters(), lr=1e-3)"


def test_a_rate_that_grows_is_announced_and_told(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT.format(optimizer=SGD, rate="0.02 * 1.03**step"), tmp_path)
    assert ran.code == 0, ran.err
    assert "the loss no longer falls: it may diverge soon" in ran.err
    (finding,) = [one for one in diagnose(ran.recording) if one.rule == "weight-runaway"]
    assert finding.evidence["loss_left_at_step"] > finding.step
    assert "had grown from" in finding.advice


def test_a_rate_that_is_warmed_up_is_not(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT.format(optimizer=ADAM, rate="3e-3 * min(1, step / 100)"), tmp_path)
    assert ran.code == 0, ran.err
    assert "diverge" not in ran.err
    assert not [one for one in diagnose(ran.recording) if one.rule == "weight-runaway"]


def test_where_a_loss_leaves_its_range() -> None:
    calm = [1.0, 1.2] * 20
    left = left_range([*calm, 1.5, 1.5, 1.5])
    assert left is not None
    assert left.step == 40
    assert left.limit == 2 * 1.2 - 1.0
    assert left_range([*calm, 1.4, 1.4, 1.4]) is None
    assert left_range([*calm, 1.5, 1.5, 1.1]) is None
    assert left_range([5.0] * 40 + calm) is None
    gone = left_range([*calm, math.nan, math.inf, math.nan])
    assert gone is not None
    assert gone.step == 40
