"""`tensonde diagnose --experiment` asks a saved step."""

from __future__ import annotations

import json
from pathlib import Path

from launch import cli

SCRIPT = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
x, z = torch.randn(256, 8), torch.randn(256, 4)
t = (x[:, :1] * 2).sin()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 1), nn.Linear(4, 16)

    def forward(self, x, z):
        return self.b(self.a(x).tanh() + 0 * self.c(z))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    index = torch.randint(0, 256, (32,))
    loss = F.mse_loss(model(x[index], z[index]), t[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_saved_step_is_asked(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ran = cli("run", "-q", "--no-experiments", "--record", "rec", "--save-step", "3", "train.py", cwd=tmp_path)
    assert ran.code == 0, ran.err
    done = cli("diagnose", "--experiment", "--json", "rec", cwd=tmp_path)
    assert done.code == 1, done.err
    found = {row["question"]: row for row in json.loads(done.out)["health"]}
    matters = found["Does every input matter?"]
    assert matters["state"] == "problem"
    assert matters["where"].endswith("train.py:14")
    assert found["Are samples independent of each other?"]["state"] == "ok"
    assert "no optimizer" in found["Does a step lower the loss of its own batch?"]["answer"]
    shown = cli("diagnose", "--experiment", "rec", cwd=tmp_path)
    assert shown.code == 1
    assert "Does every input matter?" in shown.out
    none = cli("diagnose", "--experiment", "--step", "5", "rec", cwd=tmp_path)
    assert none.code == 2
    assert "has no bundle of step 5" in none.err
