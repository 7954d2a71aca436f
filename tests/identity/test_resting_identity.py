"""Very short steps, most of which rest: bit-identical, and what is counted about them is exact."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

SCRIPT = """
import sys
sys.path.insert(0, SCRIPTS)
import torch
from evidence import leave, seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seed(3)
torch.set_num_threads(1)
front = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1))
back = nn.Linear(8, 2)
first = torch.optim.Adam(front.parameters(), 1e-3)
second = torch.optim.SGD(back.parameters(), 0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(second, 300, 0.5)
samples = TensorDataset(torch.randn(800, 6))
losses, caught = [], 0
for epoch in range(20):
    for (x,) in DataLoader(samples, batch_size=8, shuffle=True):
        first.zero_grad()
        second.zero_grad()
        loss = nn.functional.cross_entropy(back(front(x)), (x[:, 0] > 0).long())
        loss.backward()
        first.step()
        second.step()
        scheduler.step()
        losses.append(loss.item())
    front.eval()
    with torch.no_grad():
        losses.append(back(front(torch.randn(32, 6))).mean().item())
    front.train()
    try:
        front(torch.randn(3, 5))
    except RuntimeError:
        caught += 1
print(caught)
leave(losses, {"front": front, "back": back}, [first, second])
"""


def test_a_training_that_rests_is_bit_identical(foundry: Foundry, tmp_path: Path) -> None:
    script = SCRIPT.replace("SCRIPTS", repr(str(Path(__file__).parent / "scripts")))
    places = {name: tmp_path / name for name in ("bare", "rests", "glances")}
    for place in places.values():
        place.mkdir()
    bare = foundry.bare(script, places["bare"])
    ran = foundry.watched(script, places["rests"], budget=0.01)
    assert (ran.code, ran.out) == (bare.code, bare.out)
    assert ran.result == bare.result
    session = ran.session
    assert session["failures"] == {}
    assert session["steps"] == 2000
    assert session["overhead"]["levels"]["rest"] > 500
    facts = json.loads((ran.rank.folder / "facts.json").read_text())
    assert sorted(entry["steps"] for entry in facts["optimizers"]) == [2000, 2000]
    assert [entry["steps"] for entry in facts["schedulers"]] == [2000]
    assert sum(entry["passes"] for entry in facts["loaders"]) == 20
    assert [finding for finding in diagnose(ran.recording) if finding.severity != "info"] == []
    glanced = foundry.watched(script, places["glances"], budget=0.0)
    assert (glanced.code, glanced.out, glanced.result) == (bare.code, bare.out, bare.result)
    assert (glanced.session["failures"], glanced.session["steps"]) == ({}, 2000)
    levels = glanced.session["overhead"]["levels"]
    assert (levels["rest"], levels["full"]) == (0, 0)
    assert levels["glance"] > 1000
    facts = json.loads((glanced.rank.folder / "facts.json").read_text())
    assert sorted(entry["steps"] for entry in facts["optimizers"]) == [2000, 2000]
    seen = Counter(glanced.rank.digests()["site"].to_pylist())
    looked_at = {site.address: seen[id] for id, site in glanced.rank.sites.items() if seen[id]}
    assert len(looked_at) == 13  # the loss, and six parameters with their gradients
    assert set(looked_at.values()) == {2000}  # every step is at least glanced at
