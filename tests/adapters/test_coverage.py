"""What the recording says about coverage: modules are counted by name, also where they are gone when the program ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

HEAD = """
    import torch
    from torch import nn

    torch.manual_seed(0)

    def train(model, width=4, steps=5):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(steps):
            loss = model(torch.randn(8, width)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
IN_MAIN = """
    def main():
        train(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))

    main()
"""
SEVERAL = """
    for k in range(3):
        train(nn.Sequential(nn.Linear(4, 4 + k), nn.ReLU(), nn.Linear(4 + k, 1)))
    other = nn.Linear(3, 3)
    train(other, 3)
    train(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), 3)
"""
PARTLY = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare, self.parts = nn.Linear(4, 1), nn.Linear(4, 1), nn.ModuleList([nn.Tanh()])

        def forward(self, x):
            return self.parts[0](self.used(x))

    train(Net())
"""


@pytest.mark.parametrize("budget", [0.05, None])
@pytest.mark.parametrize("program", [IN_MAIN, SEVERAL], ids=["in main", "several"])
def test_models_that_are_gone_count(program: str, budget: float | None, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(HEAD + program, tmp_path, budget=budget)
    assert ran.code == 0, ran.err
    found = ran.session["coverage"]
    assert found["modules"] >= 4
    assert found["modules_watched"] == found["modules"]
    assert found["not_watched"] == {}
    assert not [finding for finding in diagnose(ran.recording) if finding.severity == "error"]


def test_a_module_that_is_not_called_is_named(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(HEAD + PARTLY, tmp_path, budget=None)
    found = ran.session["coverage"]
    assert (found["modules"], found["modules_watched"]) == (4, 3)
    assert found["not_watched"] == {"spare": "was never called"}
