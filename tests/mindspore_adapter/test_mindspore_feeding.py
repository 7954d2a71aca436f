"""What a MindSpore training is fed, and what its evaluations do: facts that the neutral rules read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

HEAD = """
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn, ops, Tensor

ms.set_seed(5)
rng = np.random.default_rng(5)
x = rng.normal(size=(240, 6)).astype(np.float32)
y = (x @ rng.normal(size=(6, 4))).argmax(1).astype(np.int32)
"""
TRAIN = """
net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
step = ms.value_and_grad(lambda a, b: criterion(net(a), b), None, optimizer.parameters)
"""
PLAIN = """
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Dense(6, 32), nn.Dense(32, 4)

    def construct(self, x):
        return self.leave(ops.relu(self.enter(x)))
"""
DROPOUT = PLAIN.replace("ops.relu(self.enter(x))", "ops.dropout(ops.relu(self.enter(x)), p=0.5{how})")
LOOP = """
for epoch in range(2):
    for a, b in data.create_tuple_iterator():
        loss, grads = step(a, b)
        optimizer(grads)
"""
SORTED = "order = np.argsort(y)\nx, y = x[order], y[order]\n"


def found(foundry: Foundry, folder: Path, program: str) -> dict[str, Finding]:
    ran = foundry.watched(program, folder)
    assert ran.code == 0, ran.err
    return {finding.rule: finding for finding in diagnose(ran.recording) if finding.severity != "info"}


@pytest.mark.parametrize("shuffle", [False, True])
def test_sorted_data_are_told_by_their_labels(foundry: Foundry, tmp_path: Path, shuffle: bool) -> None:
    data = f'data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle={shuffle}).batch(12)\n'
    findings = found(foundry, tmp_path, HEAD + SORTED + data + PLAIN + TRAIN + LOOP)
    assert ("data-not-shuffled" in findings) is not shuffle
    if not shuffle:
        source = findings["data-not-shuffled"].source
        assert source is not None
        assert "NumpySlicesDataset" in source.code


@pytest.mark.parametrize("how", ["", ", training=self.training"])
def test_dropout_in_an_evaluation_is_named_by_its_line(foundry: Foundry, tmp_path: Path, how: str) -> None:
    evaluate = "    net.set_train(False)\n    net(Tensor(x[:20]))\n    net.set_train()\n"
    data = 'data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=True).batch(12)\n'
    program = HEAD + data + DROPOUT.replace("{how}", how) + TRAIN + "net.set_train()\n" + LOOP + evaluate
    findings = found(foundry, tmp_path, program)
    assert ("dropout-active-in-eval" in findings) is (how == "")
    if not how:
        source = findings["dropout-active-in-eval"].source
        assert source is not None
        assert "ops.dropout" in source.code


def test_the_same_batch_is_named_where_the_step_is_fed(foundry: Foundry, tmp_path: Path) -> None:
    program = (
        HEAD
        + 'data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(12)\n'
        + PLAIN
        + TRAIN
        + "a, b = next(iter(data.create_tuple_iterator()))\nfor k in range(16):\n    loss, grads = step(a, b)\n    optimizer(grads)\n"
    )
    source = found(foundry, tmp_path, program)["same-batch-every-step"].source
    assert source is not None
    assert source.code == "loss, grads = step(a, b)"
