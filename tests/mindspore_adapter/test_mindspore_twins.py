"""What a comparison needs of a MindSpore run: what it keeps for the other one, and that it takes over what the other one kept."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from mindspore_trainings import FUNCTION, HEAD

from launch import Foundry
from tensonde.compare.judge import judge
from tensonde.compare.side import read_side
from tensonde.session.options import Twin

LSTM = (
    HEAD
    + """
class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 5, batch_first=True), nn.Dense(5, 3)

    def construct(self, x):
        states, _ = self.lstm(x.reshape(-1, 2, 2))  # the last state is not used: it has no gradient
        return self.head(states[:, -1])

net = Recurrent()
net.set_train()
criterion = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
step = ms.value_and_grad(lambda x, y: criterion(net(x), y), None, optimizer.parameters)
for k in range(4):
    loss, grads = step(Tensor(data), Tensor(labels))
    optimizer(grads)
    losses.append(float(loss))
leave(net)
"""
)


WINDOW = {"window": (0, 3), "steps": 3, "recommended": False}


def test_outputs_without_a_gradient_change_nothing(foundry: Foundry, tmp_path: Path) -> None:
    alone, under = tmp_path / "alone", tmp_path / "under"
    alone.mkdir()
    under.mkdir()
    bare, ran = foundry.bare(LSTM, alone), foundry.watched(LSTM, under)
    assert ran.code == 0, ran.err
    assert repr(ran.result) == repr(bare.result)
    assert ran.session["failures"] == {}


def test_a_run_takes_over_what_another_one_kept(foundry: Foundry, tmp_path: Path) -> None:
    """Other weights and other batches, until they are given: then the two compute the same, step by step."""
    other = FUNCTION.replace("set_seed(3)", "set_seed(4)").replace("RandomState(1)", "RandomState(2)")
    assert other != FUNCTION
    kept = str(tmp_path / "kept")
    sides = []
    for name, script, twin in (
        ("a", FUNCTION, Twin(keep=kept, seeded=True, across=True)),
        ("b", other, None),
        ("fed", other, Twin(take=kept, weights=True, batches=True, seeded=True, across=True)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        ran = foundry.watched(script, folder, twin=twin, **WINDOW)  # type: ignore[arg-type]
        assert not ran.session["failures"], ran.err
        assert ran.folder is not None
        sides.append(read_side(ran.folder, name))
    assert judge(sides[0], sides[1]).verdict.verdict == "divergent"
    outcome = judge(sides[0], sides[2])
    assert outcome.verdict.verdict == "equivalent", outcome.verdict.first
    assert len(sides[2].traces) == 3
    assert {weight.name for weight in sides[2].traces[2].weights} >= {"fc1.weight", "norm.gamma"}
