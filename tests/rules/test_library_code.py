"""What libraries do is told apart from what the program does."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

MODEL = """
import torch
from torch import nn
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pooler = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return hidden, self.pooler(hidden)
"""
LOOP = """
    encoder, head = Encoder(), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
    for step in range(20):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        F.cross_entropy(head(encoder(x)[0]), x[:, :3].argmax(1)).backward()
        optimizer.step()
"""


@pytest.mark.parametrize("installed", [True, False])
def test_an_unused_part_of_a_library_is_information(foundry: Foundry, tmp_path: Path, installed: bool) -> None:
    where = tmp_path / "env" / "site-packages" if installed else tmp_path / "mine"
    where.mkdir(parents=True)
    (where / "encoders.py").write_text(MODEL)
    head = f"\n    import sys\n    sys.path.insert(0, {str(where)!r})\n    from encoders import Encoder"
    ran = foundry.watched(training(head + LOOP), tmp_path)
    assert ran.code == 0, ran.err
    (found,) = [finding for finding in diagnose(ran.recording) if finding.rule == "no-gradient"]
    assert "pooler" in found.title
    assert found.severity == ("info" if installed else "error")


@pytest.mark.parametrize("installed", [True, False])
def test_hooks_that_a_library_registers_in_every_step_are_information(
    foundry: Foundry, tmp_path: Path, installed: bool
) -> None:
    """As transformers does for TRL's trainers."""
    where = tmp_path / "env" / "site-packages" if installed else tmp_path / "mine"
    where.mkdir(parents=True)
    (where / "checkpoints.py").write_text("def enable(module):\n    module.register_forward_hook(lambda *_: None)\n")
    ran = foundry.watched(
        training(f"""
    import sys
    sys.path.insert(0, {str(where)!r})
    from checkpoints import enable
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        enable(model)
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
"""),
        tmp_path,
    )
    assert ran.code == 0, ran.err
    (found,) = [finding for finding in diagnose(ran.recording) if finding.rule == "hooks-pile-up"]
    assert found.severity == ("info" if installed else "error")
    assert ("checkpoints" in found.title) is installed


def test_a_trainer_may_step_the_schedule_from_a_file_of_any_name(foundry: Foundry, tmp_path: Path) -> None:
    """skorch has its schedules in a file that is called as torch's own."""
    (tmp_path / "lr_scheduler.py").write_text("def advance(schedule):\n    schedule.step()\n")
    ran = foundry.watched(
        training(f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    from lr_scheduler import advance
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 40)
    for step in range(80):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
        advance(schedule)
"""),
        tmp_path,
    )
    assert ran.code == 0, ran.err
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
