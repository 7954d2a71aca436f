"""Losses that leap: told with their cause, and only where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.analysis.leap import leaps
from tensonde.diagnose.diagnose import diagnose

LOOP = """
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.{optimizer}
    schedule = None
    for step in range({steps}):
        given, wanted = x[16 * (step % 16) : 16 * (step % 16) + 16], t[16 * (step % 16) : 16 * (step % 16) + 16]
        {odd}
        loss = F.mse_loss(model(given), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
"""
BUGS = {
    "a batch of 1e10, and Adam goes on": (
        "batch-out-of-scale", "Adam(model.parameters(), lr=1e-3)", "given = given * 1e10 if step == 30 else given  # HERE",
    ),
    "a batch of 1e15 that ruins the weights": (
        "batch-out-of-scale", "SGD(model.parameters(), lr=0.01)", "given = given * 1e15 if step == 30 else given  # HERE",
    ),
    "a batch that overflows at once": (
        "batch-out-of-scale", "SGD(model.parameters(), lr=0.01)", "given = given * 1e38 if step == 30 else given  # HERE",
    ),
    "targets of 1e8 for a step": (
        "batch-out-of-scale", "Adam(model.parameters(), lr=1e-3)", "wanted = wanted * 1e8 if step == 30 else wanted  # HERE",
    ),
    "a batch of 60, in a training that was steady": (
        "batch-out-of-scale", "Adam(model.parameters(), lr=5e-3)", "given = given * 60 if step == 45 else given  # HERE",
    ),
    "a batch among the first": (
        "batch-out-of-scale", "Adam(model.parameters(), lr=1e-3)", "given = given * 1e6 if step == 5 else given  # HERE",
    ),
    "a rate that is set": (
        "divergence", "SGD(model.parameters(), lr=0.01)", "optimizer.param_groups[0]['lr'] = 5.0 if step >= 30 else 0.01  # HERE",
    ),
    "a rate that a schedule raises": (
        "divergence", "SGD(model.parameters(), lr=0.01)",
        "schedule = schedule or torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 500 if k >= 30 else 1)  # HERE",
    ),
}  # fmt: skip
RIGHT = {
    "an ordinary one": ("Adam(model.parameters(), lr=1e-3)", ""),
    "a batch ten times as large": ("Adam(model.parameters(), lr=1e-3)", "given = given * 10 if step == 30 else given"),
    "targets that begin at 0": (
        "Adam(model.parameters(), lr=1e-3)",
        "wanted = wanted * 100 if step > 30 else wanted * 0",
    ),
    "a warm-up": (
        "SGD(model.parameters(), lr=0.01)",
        "optimizer.param_groups[0]['lr'] = 0.02 * min(1.0, (step + 1) / 30)",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_cause_of_a_leap_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, optimizer, odd = BUGS[name]
    script = training(LOOP.format(optimizer=optimizer, odd=odd, steps=60))
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.source and first.source.line) == (rule, marked(script)), first
    if rule == "divergence":
        assert "lr 5), raised from 0.01 at step 30" in first.title


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_no_leap(foundry: Foundry, tmp_path: Path, name: str) -> None:
    optimizer, odd = RIGHT[name]
    ran = foundry.watched(training(LOOP.format(optimizer=optimizer, odd=odd, steps=60)), tmp_path)
    assert ran.code == 0, ran.err
    told = {finding.rule for finding in diagnose(ran.recording) if finding.severity != "info"}
    assert told & {"loss-spike", "batch-out-of-scale", "divergence"} == set()


def test_a_leap_is_measured_by_all_before_it() -> None:
    calm = [(k, 1.0 + 0.1 * (k % 3)) for k in range(10)]
    assert [leap.step for leap in leaps([*calm, (10, 5000.0), (11, 6000.0), (12, 1.0)])] == [10]
    assert list(leaps([*calm, (10, 20.0)])) == []
    assert [leap.step for leap in leaps([*calm, (10, 40.0)])] == [10]
    assert list(leaps([*calm[:8], (8, 1000.0)])) == []
    assert [leap.step for leap in leaps([*calm[:8], (8, 1e9)])] == [8]
    assert list(leaps([*calm[:2], (2, 1e9)])) == []
    assert list(leaps([(k, 0.0) for k in range(20)] + [(20, 3.0)])) == []


def test_a_leap_after_steady_losses_that_never_comes_again(foundry: Foundry, tmp_path: Path) -> None:
    """The loss itself leaps: neither batch nor targets tell."""
    body = LOOP.replace("wanted)", "wanted) * (300.0 if step in ODD else 1.0)").format(
        optimizer="SGD(model.parameters(), lr=1e-4)", odd="", steps=110
    )
    for odd, expected in (((60,), [60]), ((60, 90), []), (tuple(range(60, 110)), [])):
        ran = foundry.watched(training(body.replace("ODD", repr(odd))), tmp_path / str(len(odd)))
        assert [finding.step for finding in diagnose(ran.recording) if finding.rule == "loss-spike"] == expected


def test_the_step_of_a_closure_can_be_run_again(foundry: Foundry, tmp_path: Path) -> None:
    """As Lightning trains: the whole step is called by the optimizer."""
    script = training("""
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step in range(30):
            def closure():
                optimizer.zero_grad()
                far = (model(x[:16]) - t[:16]) * (0.0 if step == 20 else 1.0)
                loss = far.pow(2).sum(1).sqrt().mean()  # HERE
                loss.backward()
                return loss
            optimizer.step(closure)
    """)
    ran = foundry.watched(script, tmp_path)
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.op, first.step, first.source and first.source.line) == (
        "nan-origin",
        "sqrt",
        20,
        marked(script),
    )


def test_an_infinite_loss_is_recorded_as_such(foundry: Foundry, tmp_path: Path) -> None:
    odd = "wanted = wanted / 0.0 if step == 5 else wanted"
    ran = foundry.watched(
        training(LOOP.format(optimizer="SGD(model.parameters(), lr=0.0)", odd=odd, steps=8)),
        tmp_path,
        watch=[("loss:value", "loss > 1e30")],
    )
    assert dict(ran.scalars("loss"))[5] == float("inf")
    assert [hit.moment.step for hit in ran.rank.hits if hit.condition == "loss > 1e30"] == [5]
