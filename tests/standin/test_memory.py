"""A device without memory left: what the finding says holds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launch import Foundry
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
