"""Data of training and evaluation by a plain learner: what does not belong together is named, near misses are left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from silent_trainings import marked, training
from test_silent_bugs import findings

from launch import Foundry
from tensonde.experiments import held_out
from tensonde.experiments.held_out import Evaluation
from tensonde.experiments.pairs import Rows
from tensonde.experiments.relation import classes, learnt, related

DATA = """
def made(n, seed):
    gen = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 8, generator=gen)
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long() + (inputs[:, 2] > 0.5).long()


x, y = made(600, 1)
x_test, y_test = made(300, 2)
"""
LOOP = """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(120):
    index = torch.randint(0, len(x), (64,))
    inputs, labels = x[index], y[index]
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        model.eval()
        with torch.no_grad():
            right = (model(x_test).argmax(1) == y_test).float().mean()
        model.train()
"""
BOTH = LOOP.replace(
    "inputs, labels = x[index], y[index]", "inputs, labels, values = x[index], y[index], level[index]"
).replace(
    "F.cross_entropy(model(inputs), labels)",
    "F.cross_entropy(model(inputs), labels) + 0.1 * F.mse_loss(model(inputs).sum(1), values)",
)
TAUGHT = """
teacher, model = Net(), Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    inputs = x[torch.randint(0, 256, (32,))]
    with torch.no_grad():
        wanted = teacher(inputs)
    said = model(inputs)
    loss = F.mse_loss(said, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOADED = """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(x, t)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(8):
    for inputs, values in DataLoader(data, batch_size=32, shuffle=True):
        loss = F.mse_loss(model(inputs), values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
BUGS = {
    "labels of the training in another order": (
        "held-out-at-odds", DATA + "y = y[torch.randperm(len(y))]  # HERE\n" + LOOP
    ),
    "labels of the evaluation in another order": (
        "held-out-at-odds", DATA + "y_test = y_test[torch.randperm(len(y_test))]  # HERE\n" + LOOP
    ),
    "columns of the evaluation in another order": (
        "held-out-at-odds", DATA + "x_test = x_test.flip(1)  # HERE\n" + LOOP
    ),
    "one of two targets in another order": (
        "held-out-at-odds",
        DATA + "level = x.sum(1)\ny, y_test = y[torch.randperm(len(y))], y_test[torch.randperm(len(y_test))]  # HERE\n" + BOTH,
    ),
    "a teacher is given samples in another order": (
        "compared-with-another-sample", TAUGHT.replace("teacher(inputs)", "teacher(inputs.flip(0))  # HERE")
    ),
    "targets taken with another index": (
        "target-of-another-sample",
        LOOP.split("    if step")[0].replace("(64,)", "(32,)").replace(
            "F.cross_entropy(model(inputs), labels)", "F.cross_entropy(model(inputs), y[torch.randint(0, len(x), (32,))])  # HERE"
        ),
    ),
    "targets of a dataset rolled": (
        "targets-in-another-order", LOADED.replace("(x, t)", "(x, t.roll(1, 0))  # HERE")
    ),
}  # fmt: skip
NEAR_MISSES = {
    "a training that is evaluated": DATA + LOOP,
    "a teacher": TAUGHT,
    "two targets": DATA + "level = x.sum(1)\n" + BOTH,
    "a dataset that is shuffled": LOADED,
    "labels drawn at random, to be learnt by heart": DATA
    + "y = torch.randint(0, 3, (len(y),))\ny_test = torch.randint(0, 3, (len(y_test),))\n"
    + LOOP,
    "other labels than those that are trained on": DATA + "y_test = (x_test[:, 3] > 0).long() + 3\n" + LOOP,
    "negatives of other samples beside positives": TAUGHT.replace(
        "loss = F.mse_loss(said, wanted)", "loss = F.mse_loss(said, wanted) - 0.1 * F.mse_loss(said, wanted.flip(0))"
    ),
    "positions first, each compared with the next": """
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    waves = torch.sin(torch.arange(20)[:, None, None] * 0.3 + torch.rand(1, 16, 4))
    loss = F.mse_loss(model(waves), waves.roll(-1, 0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "mixed with the targets of others": LOOP.split("    if step")[0].replace(
        "F.cross_entropy(model(inputs), labels)",
        "F.cross_entropy(model(inputs), labels) + 0.2 * F.cross_entropy(model(inputs), y[torch.randint(0, len(x), (64,))])",
    ),
    "what comes next, in another table": """
later = torch.cat([torch.zeros(1, 1), x.sum(1, keepdim=True).tanh()[:-1]])
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    index = torch.randint(0, 255, (32,))
    loss = F.mse_loss(model(x[index]), later[index + 1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "a memory of what came before": """
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.states, self.head = nn.RNN(8, 16), nn.Linear(16, 1)

    def forward(self, rows):
        return self.head(self.states(rows)[0])


before = torch.cat([torch.zeros(1, 1), x.sum(1, keepdim=True).tanh()[:-1]])
model = Memory()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    start = 16 * (step % 16)
    loss = F.mse_loss(model(x[start : start + 16]), before[start : start + 16])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "two sets of samples, compared as a whole": """
there = torch.randn(256, 8) * 0.5 + 1
model = nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
def near(a, b):
    return torch.exp(-torch.cdist(a, b) ** 2 / 8).mean()
for step in range(60):
    moved, wanted = model(x[torch.randint(0, 256, (32,))]), there[torch.randint(0, 256, (32,))]
    loss = near(moved, moved) - 2 * near(moved, wanted) + near(wanted, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "outputs and targets sorted alike": DATA
    + LOOP.replace("loss = F.cross_entropy(model(inputs), labels)", "order = labels.argsort()\n    loss = F.cross_entropy(model(inputs)[order], labels[order])"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_what_does_not_belong_together_is_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    rule, body = BUGS[name]
    script = training(body)
    found = findings(foundry.watched(script, tmp_path, experiments=2.0))
    assert rule in [finding.rule for finding in found[:3]], [f"{finding.rule}: {finding.title}" for finding in found]
    finding = next(finding for finding in found if finding.rule == rule)
    assert finding.source is not None
    assert finding.source.line == marked(script), finding


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_left_alone(foundry: Foundry, tmp_path: Path, name: str) -> None:
    found = findings(foundry.watched(training(NEAR_MISSES[name]), tmp_path, experiments=2.0))
    assert not found, [f"{finding.rule}: {finding.title} {finding.evidence}" for finding in found]


def test_the_relation_of_shuffled_rows_is_what_its_formula_says() -> None:
    draw = np.random.default_rng(0)
    a = draw.normal(size=(64, 3))
    b = a + draw.normal(size=(64, 3))
    sums = [float(((a - a.mean(0)) * (b - b.mean(0))[draw.permutation(64)]).sum()) for _ in range(4000)]
    stands = ((a - a.mean(0)) * (b - b.mean(0))).sum() / np.std(sums)
    assert related(a, b) == pytest.approx(stands, rel=0.05)
    assert related(a, np.ones((64, 3))) is None


def test_a_plain_learner_learns_what_is_there_and_nothing_else() -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(300, 8))
    labels = (x[:, 0] * x[:, 0] + x[:, 1] > 0.5).astype(np.int64)
    hot, shuffled = classes(labels), classes(draw.permutation(labels))
    assert hot is not None
    assert shuffled is not None
    assert (learnt(x, hot) or 0) > 7
    assert abs(learnt(x, shuffled) or 0) < 3
    turns = np.eye(4)[np.arange(300) % 4]
    assert (learnt(np.concatenate([x, turns + 0.5 * draw.normal(size=turns.shape)], 1), turns) or 0) > 7, (
        "classes that take turns"
    )


def test_an_evaluation_of_few_rows_says_nothing() -> None:
    draw = np.random.default_rng(2)
    said, targets = draw.integers(0, 3, 20), draw.integers(0, 3, 20)
    told = held_out.answer(Evaluation(9, said, targets, None, None, None, None), [])
    assert told.healthy is None


def test_targets_that_do_not_mean_the_same_are_told_from_inputs_that_are_prepared_differently() -> None:
    draw = np.random.default_rng(3)
    x, other = draw.normal(size=(400, 6)), draw.normal(size=(400, 6))
    kinds, theirs = ((t[:, 0] > 0).astype(np.int64) + (t[:, 1] > 0.3) for t in (x, other))
    trained = [Rows(x, np.eye(3)[kinds], None, 20.0)]
    anew = held_out.answer(Evaluation(9, theirs, 2 - theirs, other, None, None, None), trained)
    assert (anew.healthy, anew.part) == (False, "meaning"), anew
    swapped = other[:, [2, 3, 4, 5, 0, 1]] * 3
    moved = held_out.answer(Evaluation(9, kinds, theirs, swapped, None, None, None), trained)
    assert (moved.healthy, moved.part) == (False, "inputs"), moved


def test_a_model_that_does_well_is_not_evaluated_on_inputs_of_another_kind() -> None:
    """What is learnt is a change, and what is compared is what comes of it."""
    draw = np.random.default_rng(4)
    x, other = draw.normal(size=(400, 4)), draw.normal(size=(400, 4))
    change = x * [1, -1, 1, -1]
    told = held_out.answer(Evaluation(9, other, other, other, None, None, None), [Rows(x, change, None, 20.0)])
    assert told.numbers["training"] > 7
    assert told.numbers["evaluation"] > 7
    assert told.numbers["across"] < 3
    assert told.healthy
