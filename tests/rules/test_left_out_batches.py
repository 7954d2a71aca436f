"""Bad values that the script itself looks for: a note where it leaves the batch out and trains on, an alarm where it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        x = torch.randn(8, 4)
        if step == 9:
            x[3, 2] = float("nan")
        loss = model(x).square().mean()
        if not torch.isfinite(loss):
            DO
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("does", "severity"), [("continue", "info"), ("break", "error")])
def test_what_the_script_does_about_it(does: str, severity: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT.replace("DO", does), tmp_path)
    assert ran.code == 0, ran.err
    found = [finding for finding in diagnose(ran.recording) if finding.rule == "nan-in-data"]
    assert [finding.severity for finding in found] == [severity]


SIMILARITY = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(60):
        x = torch.randn(64, 8)
        out = model(x)
        loss = -nn.functional.cosine_similarity(out, x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_leap_below_zero_is_none(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SIMILARITY, tmp_path)
    assert ran.code == 0, ran.err
    assert not [finding for finding in diagnose(ran.recording) if finding.rule == "learning-rate-too-large"]
