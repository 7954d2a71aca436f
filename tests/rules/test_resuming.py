"""A training that is resumed without its scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

RUN = """
    def build():
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.8**e)
    def epochs(count):
        for _ in range(count):
            train(model, optimizer, 4)
            schedule.step()
    model, optimizer, schedule = build()
    epochs(10)
    saved = model.state_dict(), optimizer.state_dict(), schedule.state_dict()
    model, optimizer, schedule = build()
    model.load_state_dict(saved[0])
    {resume}
    epochs(5)
"""

BUGS = {
    "left behind": "optimizer.load_state_dict(saved[1])  # HERE",
    "made after the load": """optimizer.load_state_dict(saved[1])  # HERE
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.8**e)""",
}
NEAR_MISSES = {
    "given its state": "optimizer.load_state_dict(saved[1]); schedule.load_state_dict(saved[2])",
    "stepped forward": """optimizer.load_state_dict(saved[1])
    for _ in range(10):
        schedule.step()""",
    "made with last_epoch": """optimizer.load_state_dict(saved[1])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.8**e, last_epoch=9)""",
    "one that goes on from what it finds": """optimizer.load_state_dict(saved[1])
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)""",
    "a new optimizer": "",
}


@pytest.mark.parametrize("name", BUGS)
def test_the_load_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    script = training(RUN.replace("{resume}", BUGS[name]))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert first.rule == "schedule-not-resumed"
    assert first.source is not None
    assert first.source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_schedule_that_goes_on_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(RUN.replace("{resume}", NEAR_MISSES[name])), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
