"""An overflow that one gradient of a recurrent weight prepared is told as that, and only where the gradient did it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

SCRIPT = """
    import torch
    from torch import nn
    import torch.nn.functional as F

    torch.manual_seed(0)


    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(2, 48, nonlinearity="relu", batch_first=True)
            nn.init.{init}(self.rnn.weight_hh_l0)

        def forward(self, x):
            return self.rnn(x)[0][:, -1]


    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.again = nn.Linear(2, 48), nn.Linear(48, 48, bias=False)
            nn.init.{init}(self.again.weight)

        def forward(self, x):
            h = torch.zeros(len(x), 48)
            for t in range(x.shape[1]):
                h = torch.relu(self.into(x[:, t]) + self.again(h))
            return h


    model = nn.Sequential({kind}(), nn.Linear(48, 1))
    optimizer = torch.optim.{optimizer}
    for step in range(6):
        x = torch.rand(32, 60, 2)
        loss = F.mse_loss(model(x)[:, 0], x.sum((1, 2)))
        optimizer.zero_grad()
        loss.backward()
        {clip}
        optimizer.step()  # HERE
"""
SGD = "SGD(model.parameters(), lr=0.01)"


def told(foundry: Foundry, tmp_path: Path, **given: str) -> list[Finding]:
    text = SCRIPT.format(**{"kind": "Layer", "init": "eye_", "optimizer": SGD, "clip": "pass", **given})
    ran = foundry.watched(text, tmp_path)
    assert ran.code == 0, ran.err
    assert not ran.session["failures"]
    return [finding for finding in diagnose(ran.recording) if finding.severity != "info"]


@pytest.mark.parametrize(("kind", "weight"), [("Layer", "0.rnn.weight_hh_l0"), ("ByHand", "0.again.weight")])
def test_the_gradient_is_named_before_the_overflow(foundry: Foundry, tmp_path: Path, kind: str, weight: str) -> None:
    found = told(foundry, tmp_path, kind=kind)
    assert found[0].rule == "exploding-gradients"
    assert found[0].site == f"{weight}:grad"
    assert found[0].source is not None
    assert found[0].source.code == "optimizer.step()  # HERE"
    assert found[0].evidence["grad_over_weight"] > 10
    assert all(finding.caused_by == 0 for finding in found[1:])
    assert any(finding.rule == "nan-origin" for finding in found[1:])


@pytest.mark.parametrize(
    "given",
    [
        {"clip": "nn.utils.clip_grad_norm_(model.parameters(), 0.5)"},
        {"init": "ones_"},  # too large from the start: no gradient made it so
        {"optimizer": "Adam(model.parameters(), lr=2.0)"},  # its steps do not go by the gradient's size
    ],
    ids=["clipped", "large from the start", "normalised"],
)
def test_other_reasons_are_not_taken_for_it(foundry: Foundry, tmp_path: Path, given: dict[str, str]) -> None:
    assert "exploding-gradients" not in [finding.rule for finding in told(foundry, tmp_path, **given)]
