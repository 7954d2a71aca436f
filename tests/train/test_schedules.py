"""Schedules: the seed's WarmUpLR, composition, playing one through without disturbing it, mistakes, and `tensonde lr`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as torch_schedules
from train_sample import parts

from launch import Foundry, cli
from tensonde.cli.commands.lr import REHEARSAL
from tensonde.errors import UsageError
from tensonde.train import (
    LearningRateMonitor,
    LearningRateScheduler,
    Model,
    WarmUpLR,
    check_schedule,
    follow,
    schedule_curve,
    warm_up,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "schedule.py"


def optimizer(lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=lr, momentum=0.9)


def played(scheduler: Any, steps: int) -> list[float]:
    """As the training itself would have it."""
    rates = []
    for _ in range(steps):
        rates.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return rates


def test_the_warm_up_of_the_guide() -> None:
    schedule = WarmUpLR(0.1, 4)
    assert [schedule(step) for step in range(6)] == pytest.approx([0, 0.025, 0.05, 0.075, 0.1, 0.1])
    assert played(follow(optimizer(), schedule), 6) == pytest.approx([0, 0.025, 0.05, 0.075, 0.1, 0.1])
    for wrong in ((1, 4), (-0.1, 4), (0.1, 0), (0.1, 2.5)):
        with pytest.raises(UsageError):
            WarmUpLR(*wrong)  # type: ignore[arg-type]


def test_a_warm_up_and_then_another() -> None:
    opt = optimizer()
    scheduler = warm_up(opt, 4, torch_schedules.StepLR(opt, 3, gamma=0.1))
    assert played(scheduler, 9) == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01])


MAKERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: torch_schedules.StepLR(o, 3),
    "cosine": lambda o: torch_schedules.CosineAnnealingLR(o, 20),
    "restarts": lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 5),
    "one-cycle": lambda o: torch_schedules.OneCycleLR(o, 1.0, total_steps=30),
    "lambda": lambda o: torch_schedules.LambdaLR(o, lambda k: 0.9**k),
    "milestones": lambda o: torch_schedules.MultiStepLR(o, [4, 9]),
    "warm up": lambda o: warm_up(o, 4, torch_schedules.CosineAnnealingLR(o, 16)),
    "chained": lambda o: torch_schedules.ChainedScheduler(
        [torch_schedules.ConstantLR(o), torch_schedules.ExponentialLR(o, 0.9)]
    ),
    "follow": lambda o: follow(o, WarmUpLR(0.1, 7)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_playing_through_says_what_comes_and_leaves_no_trace(name: str) -> None:
    scheduler = MAKERS[name](optimizer())
    for _ in range(2):
        scheduler.optimizer.step()
        scheduler.step()
    foretold = [rates[0] for rates in schedule_curve(scheduler, 20).rates]
    assert played(scheduler, 20) == foretold
    assert len(set(foretold)) > 1


@pytest.mark.parametrize(
    ("make", "steps", "sentence"),
    [
        (lambda o: torch_schedules.CosineAnnealingLR(o, 60), 100, "rises again"),
        (lambda o: torch_schedules.OneCycleLR(o, 1.0, total_steps=30), 100, "raises after step 30: ValueError"),
        (lambda o: follow(o, WarmUpLR(0.1, 1000)), 100, "still warms up at the end"),
        (lambda o: follow(o, lambda k: 0.0 if k < 3 else 0.1 / k), 100, "0 in the first 3 steps"),
        (lambda o: torch_schedules.StepLR(o, 500), 100, "never changes in 100 steps: it first does after 500 steps"),
        (lambda o: torch_schedules.StepLR(o, 5), 100, "less than a thousandth of the peak"),
        (lambda o: follow(o, lambda k: 0.1 - 0.01 * k), 20, "negative at step 11"),
    ],
)
def test_the_usual_mistakes(make: Callable[[Any], Any], steps: int, sentence: str) -> None:
    found = check_schedule(schedule_curve(make(optimizer()), steps))
    assert any(sentence in mistake for mistake in found), found


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch_schedules.CosineAnnealingLR(o, 100),
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 30),
        lambda o: torch_schedules.OneCycleLR(o, 1.0, total_steps=100),
        lambda o: torch_schedules.StepLR(o, 30),
        lambda o: torch_schedules.ExponentialLR(o, 0.97),
        lambda o: torch_schedules.CyclicLR(o, 0.01, 0.1, step_size_up=10),
        lambda o: warm_up(o, 10, torch_schedules.CosineAnnealingLR(o, 90)),
        lambda o: torch_schedules.LinearLR(o, 0.1, total_iters=20),
        lambda o: follow(o, WarmUpLR(0.1, 10)),  # one step at 0, as transformers' warm-ups have it
        lambda o: torch_schedules.LambdaLR(o, lambda _: 1.0),  # constant, and meant to be
        lambda o: torch_schedules.LambdaLR(o, ([1.0] * 100).__getitem__),  # raises beyond the training
    ],
)
def test_good_schedules_are_left_in_peace(make: Callable[[Any], Any]) -> None:
    assert check_schedule(schedule_curve(make(optimizer()), 100)) == []


def test_a_scheduler_in_model() -> None:
    network, loss_fn, opt, loader = parts()
    rates = LearningRateMonitor()
    scheduler = torch_schedules.ExponentialLR(opt, 0.5)
    Model(network, loss_fn, opt).train(2, loader, [rates, LearningRateScheduler(scheduler, "epoch")])
    assert [rate for (rate,) in rates.rates] == [0.01] * 4 + [0.005] * 4


def test_tensonde_lr(tmp_path: Path) -> None:
    ran = cli("lr", "--epochs", "10", EXAMPLE, cwd=tmp_path)
    assert ran.code == 1, ran.err
    assert "CosineAnnealingLR, group 0, stepped every batch" in ran.out
    assert "warning: It is lowest at step 60 and then rises again" in ran.out
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    ran = cli("lr", "--json", EXAMPLE, cwd=tmp_path)
    found = json.loads(ran.out)
    assert (ran.code, found["batches"], found["schedulers"][0]["steps"]) == (0, 10, 60)


def rehearsed(foundry: Foundry, tmp_path: Path, text: str, **wanted: Any) -> dict[str, Any]:
    """What `tensonde lr` learns inside of the script."""
    place = tmp_path / "rates.json"
    env = {"TENSONDE_LR": json.dumps({"file": str(place), **wanted})}
    foundry.watched(text, tmp_path, env=env, prepare=REHEARSAL, recommended=False)
    (scheduler,) = json.loads(place.read_text())["schedulers"]
    return scheduler  # type: ignore[no-any-return]


def test_by_epoch_and_in_the_wrong_order(foundry: Foundry, tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("        scheduler.step()\n", "    scheduler.step()\n")
    found = rehearsed(foundry, tmp_path, text, epochs=70)
    assert (found["stepped"], found["every"], len(found["rates"])) == ("epoch", 10, 700)
    assert [rates[0] for rates in found["rates"]][8:12] == [0.1, 0.1, *[0.1 * (1 + math.cos(math.pi / 60)) / 2] * 2]
    wrong = (
        EXAMPLE.read_text()
        .replace("        scheduler.step()\n", "")
        .replace("    loss = ", "    scheduler.step()\n        loss = ")
    )
    found = rehearsed(foundry, tmp_path, wrong)
    assert found["stepped"] == "batch"
    assert "comes before optimizer.step()" in found["mistakes"][0]


def test_one_that_goes_by_a_metric(foundry: Foundry, tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("CosineAnnealingLR(optimizer, T_max=60)", "ReduceLROnPlateau(optimizer)")
    text = text.replace("scheduler.step()", "scheduler.step(loss.item())")
    assert "goes by a metric" in rehearsed(foundry, tmp_path, text)["unknown"]


MADE_OF_OTHERS = """
import json, os, torch
from torch import nn
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, CosineAnnealingLR, ExponentialLR, LinearLR, SequentialLR
from tensonde.train import warm_up
network, other = nn.Linear(2, 1), nn.Linear(2, 1)
optimizer, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (network, other))
scheduler = {made}
rates = []
for step in range(110):
    for part, stepped in ((network, optimizer), (other, second)):
        stepped.zero_grad()
        part(torch.ones(1, 2)).sum().backward()
        rates += [group["lr"] for group in optimizer.param_groups] if stepped is optimizer else []
        stepped.step()
    scheduler.step()
json.dump(rates, open(os.environ["RESULT"], "w"))
"""


@pytest.mark.parametrize(
    "made",
    [
        "SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=10), CosineAnnealingLR(optimizer, 90)], [10])",
        "ChainedScheduler([ConstantLR(optimizer, 0.1, total_iters=5), ExponentialLR(optimizer, 0.98)], optimizer)",
        "warm_up(optimizer, 10, then=CosineAnnealingLR(optimizer, 100))",
    ],
)
def test_one_that_is_made_of_others_is_one(foundry: Foundry, tmp_path: Path, made: str) -> None:
    """One curve, the true one; its parts are not schedulers of their own. And a second optimizer is no second step."""
    text = MADE_OF_OTHERS.replace("{made}", made)
    found = rehearsed(foundry, tmp_path, text, steps=110)
    assert (found["stepped"], found["mistakes"]) == ("batch", [])
    assert [rate for (rate,) in found["rates"]] == pytest.approx(foundry.bare(text, tmp_path).result)
    longest = rehearsed(foundry, tmp_path, text)["steps"]
    assert longest == (110 if "warm_up" in made else 100)


def test_epochs_without_a_loader_are_asked_for(tmp_path: Path) -> None:
    text = MADE_OF_OTHERS.replace("{made}", "CosineAnnealingLR(optimizer, 100)")
    (tmp_path / "batch.py").write_text(text)
    ran = cli("lr", "--epochs", "11", "batch.py", cwd=tmp_path)
    assert ran.code == 2
    assert "batch.py iterates no DataLoader" in ran.err
    assert "add --steps-per-epoch N" in ran.err
    ran = cli("lr", "--epochs", "10", "--steps-per-epoch", "10", "--json", "batch.py", cwd=tmp_path)
    (scheduler,) = json.loads(ran.out)["schedulers"]
    assert (ran.code, len(scheduler["rates"]), scheduler["mistakes"]) == (0, 100, [])


def test_by_epoch_without_a_loader_the_unit_is_said(foundry: Foundry, tmp_path: Path) -> None:
    text = MADE_OF_OTHERS.replace("{made}", "CosineAnnealingLR(optimizer, 100)")
    text = text.replace("    scheduler.step()\n", "    if step % 10 == 9: scheduler.step()\n")
    found = rehearsed(foundry, tmp_path, text, epochs=20)
    assert (found["stepped"], found["unit"], len(found["rates"])) == ("epoch", "epoch", 20)
    assert rehearsed(foundry, tmp_path, text, steps=20)["ask"] == "steps_per_epoch"
    found = rehearsed(foundry, tmp_path, text, epochs=20, steps_per_epoch=10)
    assert (found["unit"], len(found["rates"]), found["rates"][9], found["rates"][10] < [0.1]) == (
        "step",
        200,
        [0.1],
        True,
    )


ACCUMULATED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.ones(24, 2))
for batch in DataLoader(data, batch_size=24): mean = batch[0].mean()  # looked through before the training
network, critic = nn.Linear(2, 1), nn.Linear(2, 1)
rare, often = torch.optim.SGD(network.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(rare, 100)
for epoch in range(100):
    for number, (x,) in enumerate(DataLoader(data, batch_size=2, shuffle=True)):
        critic(x).sum().backward()
        often.step()
        network(x).sum().backward()
        if number % 4 == 3:
            rare.step()
            PER_BATCH
        for batch in DataLoader(data, batch_size=8): network(batch[0])  # evaluated
    PER_EPOCH
"""


def test_an_epoch_has_as_many_steps_as_the_optimizer_takes_in_it(foundry: Foundry, tmp_path: Path) -> None:
    """Gradient accumulation, another loader before and in between, and an optimizer that steps more often."""
    by_epoch = ACCUMULATED.replace("PER_BATCH", "pass").replace("PER_EPOCH", "schedule.step()")
    found = rehearsed(foundry, tmp_path, by_epoch, epochs=10)
    assert (found["stepped"], found["every"], len(found["rates"]), found["mistakes"]) == ("epoch", 3, 30, [])
    by_batch = ACCUMULATED.replace("PER_BATCH", "schedule.step()").replace("PER_EPOCH", "pass")
    found = rehearsed(foundry, tmp_path, by_batch, epochs=10)
    assert (found["stepped"], found["every"], len(found["rates"])) == ("batch", 1, 30)


def test_tensonde_lr_without_a_training(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("print('hello')\n")
    ran = cli("lr", "none.py", cwd=tmp_path)
    assert ran.code == 2
    assert "ended before its second optimizer step" in ran.err
