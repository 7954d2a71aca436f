"""A training whose step is captured as a graph: nothing of Tensonde's is in the graph, and nothing spoils the capture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import Foundry

pytestmark = pytest.mark.usefixtures("standin")

PROGRAM = f"""
import json, os, sys; sys.path.append({str(Path(__file__).parent)!r})
import standin, torch
from torch import nn
torch.manual_seed(0)
device = "standin"
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.zeros(16, 4, device=device), torch.zeros(16, 2, device=device)

def fill(step):
    values = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
    x.copy_(values)
    y.copy_(values[:, :2] * 2)

for step in range(WARM):
    fill(step)
    optimizer.zero_grad(set_to_none=True)
    (net(x) - y).square().mean().backward()
    optimizer.step()
optimizer.zero_grad(set_to_none=True)
with standin.captured() as graph:
    loss = (net(x) - y).square().mean()
    loss.backward()
    if WHOLE:
        optimizer.step()
for step in range(WARM, 12):
    fill(step)
    graph.replay()
    if not WHOLE:
        optimizer.step()
weights = [p.detach().cpu().flatten().tolist() for p in net.parameters()]
json.dump({{"weights": weights, "launches": graph.launches, "loss": loss.item()}}, open(os.environ["RESULT"], "w"))
"""


@pytest.mark.parametrize(("warm", "whole"), [(3, False), (3, True), (0, False)])
def test_a_capture_is_left_alone(foundry: Foundry, tmp_path: Path, warm: int, whole: bool) -> None:
    text = PROGRAM.replace("WARM", str(warm)).replace("WHOLE", str(whole))
    results = []
    for name in ("bare", "watched"):
        folder = tmp_path / name
        folder.mkdir()
        env = {"RESULT": str(folder / "result.json")}
        ran = foundry.bare(text, folder, env=env) if name == "bare" else foundry.watched(text, folder, env=env)
        assert ran.code == 0, ran.err
        results.append(json.loads((folder / "result.json").read_text()))
    assert results[0] == results[1]
    assert ran.session["failures"] == {}
    if not whole:  # the optimizer is outside of the graph: parameters and gradients are seen
        assert ran.session["steps"] == 12
