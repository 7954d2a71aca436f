"""A sum that overflows in float16 is named, though the loss stays finite."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

NORMALISED = """
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 3)

        def forward(self, given):
            wide = (100 * given + 100).{dtype}()
            length = (wide * wide).sum(-1, keepdim=True)  # HERE
            return self.body((wide / length.sqrt()).float())

    model = Scaled()
    train(model, torch.optim.Adam(model.parameters()))
"""
MASKED = """
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 3)

        def forward(self, given):
            scores = self.body(given).half()
            scores = scores + torch.tensor([0, 0, 1]).half() * -1e5
            return scores.float().softmax(-1).log1p()

    model = Masked()
    train(model, torch.optim.Adam(model.parameters()), target=y.clamp(max=1))
"""


def test_a_sum_of_squares_that_overflows(foundry: Foundry, tmp_path: Path) -> None:
    script = training(NORMALISED.format(dtype="half"))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    (found,) = [finding for finding in diagnose(ran.recording) if finding.rule == "overflow-in-float16"]
    assert found.source is not None
    assert found.source.line == marked(script)


@pytest.mark.parametrize("script", [NORMALISED.format(dtype="float"), MASKED], ids=["float32", "a mask"])
def test_what_does_not_overflow(foundry: Foundry, tmp_path: Path, script: str) -> None:
    ran = foundry.watched(training(script), tmp_path)
    assert ran.code == 0, ran.err
    assert "overflow-in-float16" not in [finding.rule for finding in diagnose(ran.recording)]
