"""A loss that is summed is named beside the learning rate when the training diverges."""

from __future__ import annotations

from pathlib import Path

from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

DIVERGES = """
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    criterion = nn.MSELoss(reduction="sum")  # HERE
    train(model, torch.optim.SGD(model.parameters(), lr=0.05), 30, size=64, loss=criterion, target=x)
"""


def test_a_summed_loss_is_named_second(foundry: Foundry, tmp_path: Path) -> None:
    script = training(DIVERGES)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first, second = diagnose(ran.recording)[:2]
    assert first.rule == "divergence"
    assert second.rule == "loss-summed"
    assert second.evidence["values"] == 512
    assert second.source is not None
    assert second.source.line == marked(script)
