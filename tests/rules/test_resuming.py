"""A training that is resumed without its scheduler, or without its optimizer's state."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

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


CHECKPOINT = """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    def build():
        model = Net()
        return model, torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer = build()
    train(model, optimizer, 8)
    {save}
    model, optimizer = build()
    {load}
    {train}
"""
PLAIN = 'dcp.save({"model": model.state_dict(), "opt": optimizer.state_dict()}, checkpoint_id="kept", no_dist=True)'
MADE = """weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "opt": moments}, checkpoint_id="kept", no_dist=True)"""
GOES_ON = "train(model, optimizer, 8)"
READ = """state = {"model": model.state_dict(), "opt": optimizer.state_dict()}
    dcp.load(state, checkpoint_id="kept", no_dist=True)  # HERE
    model.load_state_dict(state["model"])"""


def checkpointed(foundry: Foundry, tmp_path: Path, save: str, load: str, train: str) -> tuple[list[Finding], int]:
    script = training(CHECKPOINT.replace("{save}", save).replace("{load}", load).replace("{train}", train))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    return [one for one in diagnose(ran.recording) if one.severity != "info"], marked(script) if "# HERE" in load else 0


def test_a_checkpoint_is_read_into_an_empty_state(foundry: Foundry, tmp_path: Path) -> None:
    """The model's own tensors are filled, so that loading them once more changes nothing and is no mistake."""
    found, line = checkpointed(foundry, tmp_path, PLAIN, READ, GOES_ON)
    assert [one.rule for one in found] == ["optimizer-state-not-read"]
    assert found[0].source is not None
    assert found[0].source.line == line


@pytest.mark.parametrize(
    ("save", "load", "train"),
    [
        (PLAIN, READ, "model(torch.randn(4, 8))"),
        (PLAIN, READ.replace(', "opt": optimizer.state_dict()', ""), GOES_ON),
        (
            MADE,
            """weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "opt": moments}, checkpoint_id="kept", no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)""",
            GOES_ON,
        ),
    ],
)
def test_a_checkpoint_that_is_read_is_left_alone(
    foundry: Foundry, tmp_path: Path, save: str, load: str, train: str
) -> None:
    assert checkpointed(foundry, tmp_path, save, load, train)[0] == []
