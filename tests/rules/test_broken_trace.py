"""A trace that broke off in the middle of an op: rules say what they can, and none fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.store.reader import Recording
from tensonde.store.traces import read_trace

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.norm = nn.BatchNorm1d(8)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)
    def forward(self, ids):
        x = self.norm(self.words(ids).transpose(1, 2)).transpose(1, 2)
        out, _ = self.gru(x)
        weights = torch.softmax(out @ out.transpose(1, 2) / 8 ** 0.5, -1)
        return self.head(torch.relu((weights @ out).mean(1)))

net = Net()
optimizer = torch.optim.Adam(net.parameters())
for step in range(4):
    ids, target = torch.randint(0, 16, (8, 5)), torch.randint(0, 4, (8,))
    loss = nn.functional.cross_entropy(net(ids), target) + 1e-3 * net.head.weight.square().sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
"""


def test_no_rule_fails(foundry: Foundry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = foundry.watched(SCRIPT, tmp_path)
    assert ran.code == 0, ran.err
    files = sorted((ran.recording.path / "rank0" / "traces").glob("*.json"))
    whole = [json.loads(file.read_bytes()) for file in files]
    count = len(whole[0]["ops"])
    assert count > 10
    assert whole[0]["loss"] is not None
    monkeypatch.setenv("TENSONDE_STRICT", "1")
    for kept in range(count):
        for file, trace in zip(files, whole, strict=True):
            ops = trace["ops"][:kept]
            if kept % 2 and ops:  # it was noted, but what it gave was not
                ops[-1] = {**ops[-1], "outputs": []}
            file.write_text(json.dumps({**trace, "ops": ops}))
            found = read_trace(file)
            assert found.loss is None or found.ops[found.loss].outputs
        diagnose(Recording.open(ran.recording.path))
