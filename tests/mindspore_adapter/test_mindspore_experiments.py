"""Experiments on MindSpore: steps are asked, the training stays the same to the bit, and mistakes that only an experiment sees are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mindspore")

from mindspore_trainings import HEAD

from launch import Foundry, Ran, cli
from tensonde.diagnose.diagnose import diagnose

SECONDS = 20.0
"""More than in a short run, so that the answers do not depend on how fast the machine is."""
TRAINING = """
centers = rng.randn(3, 4).astype(np.float32)
labels = rng.randint(0, 3, 320).astype(np.int32)
data = centers[labels] + 0.3 * rng.randn(320, 4).astype(np.float32)
net = Net()
net.set_train()
criterion = nn.CrossEntropyLoss()
optimizer = nn.{optimizer}

def forward(x, y):
    h = net(x)
    h = ops.cat([h[:, :1], h[:, 1:]], 1)
    return criterion(h, y)

step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(50):
    at = np.arange(k % 10 * 32, k % 10 * 32 + 32)
    loss, grads = step({batch})
    optimizer(grads)
    losses.append(float(loss.asnumpy()))
leave(net)
"""
HEALTHY = {"optimizer": "Adam(net.trainable_params(), 0.01)", "batch": "Tensor(data[at]), Tensor(labels[at])"}


def script(**parts: str) -> str:
    text = HEAD + TRAINING
    for name, part in {**HEALTHY, **parts}.items():
        text = text.replace("{" + name + "}", part)
    return text


def answers(ran: Ran) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for fact in ran.rank.facts["answers"]:
        found.setdefault(fact["experiment"], []).append(fact.get("healthy"))
    return found


@pytest.fixture(scope="module")
def healthy(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return foundry.watched(script(), tmp_path_factory.mktemp("healthy"), experiments=SECONDS, budget=0.05)


def test_steps_are_asked_and_nothing_changes(foundry: Foundry, healthy: Ran, tmp_path: Path) -> None:
    bare = foundry.bare(script(), tmp_path)
    assert healthy.code == 0, healthy.err
    assert repr(healthy.result) == repr(bare.result)
    assert healthy.session["failures"] == {}
    found = answers(healthy)
    assert not found.get(""), found  # no step was declined
    for name in ("nothing-learnt", "reach", "own-batch", "influence", "independence", "modes", "pairs", "dead-ends"):
        assert True in found[name], (name, found[name])
    assert not any(False in told for told in found.values()), found


def test_a_healthy_training_is_left_in_peace(healthy: Ran) -> None:
    assert [finding for finding in diagnose(healthy.recording) if finding.severity != "info"] == []


def test_a_rate_that_is_too_large_raises_the_loss_of_its_own_batch(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(script(optimizer="SGD(net.trainable_params(), 30.0)"), tmp_path, experiments=SECONDS)
    assert False in answers(ran)["own-batch"]


def test_targets_of_other_samples_are_found(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(script(batch="Tensor(data[at]), Tensor(labels[at - 1])"), tmp_path, experiments=SECONDS)
    assert False in answers(ran)["pairs"]


def test_what_draws_random_numbers_is_not_asked(foundry: Foundry, tmp_path: Path) -> None:
    text = script().replace("h = net(x)\n", "h = net(x + 0.0 * ops.standard_normal(x.shape))\n")
    ran = foundry.watched(text, tmp_path, experiments=SECONDS)
    assert ran.code == 0
    assert set(answers(ran)) == {""}
    assert "random numbers" in ran.rank.facts["answers"][0]["why"]


def test_check_shows_the_health_table(tmp_path: Path) -> None:
    text = script().replace("leave(net)\n", "")
    (tmp_path / "train.py").write_text(text)
    ran = cli("check", "train.py", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    line = next(line for line in ran.out.splitlines() if "Does a step lower the loss of its own batch?" in line)
    assert line.startswith("✓"), line


def test_a_run_is_asked_only_where_the_user_wants_it(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(script(), tmp_path, experiments=SECONDS, experiments_by_default=True)
    assert ran.code == 0, ran.err
    assert answers(ran) == {}
