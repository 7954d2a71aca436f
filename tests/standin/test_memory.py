"""A device without memory left: what the finding says holds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.case import Case
from tensonde.diagnose.diagnose import diagnose

LIMIT = 16 << 20
SCRIPT = f"""
import sys; sys.path.append({str(Path(__file__).parent)!r})
import standin, torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).to("standin")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
losses = []
for step in range(200):
    x, y = torch.randn(BATCH, 64, device="standin"), torch.randint(0, 4, (BATCH,)).to("standin")
    if step == 2:
        standin.ext.set_limit(standin.memory()[0] + (8 << 20), 0)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward(retain_graph=KEPT)
    optimizer.step()
    losses.append(loss)  # HERE
"""


@pytest.mark.slow
def test_losses_that_are_kept_with_their_graphs(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT.replace("BATCH", "64").replace("KEPT", "True"), tmp_path, budget=0.05)
    assert ran.code == 1
    assert "OutOfMemoryError" in ran.err
    finding = next(finding for finding in diagnose(ran.recording) if finding.rule == "out-of-memory")
    marked = next(k for k, text in enumerate(SCRIPT.splitlines(), 1) if "# HERE" in text)
    assert finding.source is not None
    assert finding.source.line == marked
    assert "`losses` holds" in finding.advice


@pytest.mark.slow
def test_a_batch_that_is_too_large(foundry: Foundry, tmp_path: Path) -> None:
    script = (
        SCRIPT.replace("KEPT", "False")
        .replace("losses.append(loss)", "pass")
        .replace("standin.memory()[0] + (8 << 20)", str(LIMIT))
    )
    ran = foundry.watched(script.replace("BATCH", "(64 if step < 2 else 4096)"), tmp_path, budget=0.05)
    assert ran.code == 1
    finding = next(finding for finding in diagnose(ran.recording) if finding.rule == "out-of-memory")
    said = re.search(r"batches of (\d+) \(now 4096\)", finding.advice)
    assert said, finding.advice
    for batch, code in ((int(said[1]), 0), (round(int(said[1]) * 1.1), 1)):
        folder = tmp_path / str(batch)
        folder.mkdir()
        assert foundry.bare(script.replace("BATCH", str(batch)), folder).code == code, batch
    assert finding.evidence["parameters"] == "326.0 KiB"
    assert finding.evidence["optimizer"] == "652.0 KiB"


@pytest.mark.parametrize(("free", "asked"), [(8, True), (1, False)])
def test_experiments_leave_memory_to_the_training(foundry: Foundry, tmp_path: Path, free: int, asked: bool) -> None:
    """A model of about 64 kB; `free`: megabytes that the device has left."""
    ran = foundry.watched(
        f"""
import sys; sys.path.append({str(Path(__file__).parent)!r})
import torch
from torch import nn
import standin
net = nn.Sequential(nn.Linear(16, 240), nn.ReLU(), nn.Linear(240, 40), nn.ReLU(), nn.Linear(40, 40)).to("standin")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(16, 16).to("standin")
for step in range(3):
    out = net(x).square().mean()
    optimizer.zero_grad()
    out.backward()
    with standin.limited(standin.memory()[0] + ({free} << 20)):
        optimizer.step()
""",
        tmp_path,
        budget=0.05,
        experiments=60.0,
    )
    assert ran.code == 0, ran.err
    answers = Case(ran.rank).facts.answers
    declined = [answer.why for answer in answers if not answer.experiment]
    if asked:
        assert not any("free memory" in why for why in declined), declined
        assert any(answer.experiment for answer in answers), answers
    else:
        assert "the device has too little free memory" in " ".join(declined), answers
