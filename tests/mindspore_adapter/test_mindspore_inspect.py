"""`tensonde.inspect` of MindSpore's ops, functions and cells, in PyNative mode and of what would be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

mindspore = pytest.importorskip("mindspore")

import numpy as np
from mindspore import GRAPH_MODE, PYNATIVE_MODE, Tensor, nn, ops

import tensonde
from launch import Foundry
from tensonde.errors import UsageError
from tensonde.store.reader import Recording


@pytest.fixture(autouse=True)
def _mode() -> Iterator[None]:
    yield
    mindspore.set_context(mode=PYNATIVE_MODE)


class Net(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="valid")
        self.bn = nn.BatchNorm2d(2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc = nn.Dense(72, 10)

    def construct(self, x: Any) -> Any:
        return self.fc(self.flatten(self.relu(self.bn(self.conv(x)))))


def images() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return Tensor(rng.normal(size=(4, 1, 8, 8)).astype(np.float32)), Tensor(np.array([1, 2, 3, 4], np.int32))


def add_func(x: Any, y: Any) -> Any:
    z = ops.add(x, y)
    return ops.add(z, x)


def test_a_function() -> None:
    seen = tensonde.inspect(add_func, ops.ones((3, 3)), ops.ones((3, 3)))  # tensors that ops have made
    assert [op.site for op in seen] == ["/add#0", "/add#1"]
    assert seen.result.asnumpy().tolist() == [[3.0] * 3] * 3
    assert seen.value("add#0").asnumpy().tolist() == [[2.0] * 3] * 3
    assert seen[1].source is not None
    assert "ops.add(z, x)" in seen[1].source.code
    assert seen[1].inputs[0].producer == 0


def test_gradients_of_inputs() -> None:
    x, y = Tensor(1.0), Tensor(2.0)
    assert {k: float(g) for k, g in tensonde.inspect(lambda x, y: x * y, x, y, wrt="all").gradients.items()} == {
        "x": 2.0,
        "y": 1.0,
    }
    assert set(tensonde.inspect(lambda x, y: x * y, x, y, wrt=y).gradients) == {"y"}
    (op,) = tensonde.inspect(ops.mul, x, y, wrt=[0])
    assert op.op == "mul"


def test_what_a_function_makes_inside_is_no_input_of_it() -> None:
    (op,) = tensonde.inspect(lambda x: ops.logsumexp(x, -1), images()[0])
    assert op.op == "logsumexp"
    assert [fact.producer for fact in op.inputs] == [None]


def test_a_training_step_of_a_cell(tmp_path: Path) -> None:
    net, criterion = Net(), nn.CrossEntropyLoss()
    net.set_train()
    x, y = images()
    seen = tensonde.inspect(lambda x, y: criterion(net(x), y), x, y)
    moved = net.bn.moving_mean.asnumpy().copy()
    weights = list(net.trainable_params())
    loss, wanted = mindspore.value_and_grad(lambda x, y: criterion(net(x), y), None, weights)(x, y)
    assert float(seen.result) == float(loss)
    for parameter, gradient in zip(weights, wanted, strict=True):
        assert np.array_equal(seen.gradients[parameter.name].asnumpy(), gradient.asnumpy())
    again = net.bn.moving_mean.asnumpy()
    assert np.allclose(again, moved * 1.9)  # the momentum is 0.9, and each was one call
    assert [op.op for op in seen] == ["conv2d", "batch_norm", "relu", "flatten", "linear", "cross_entropy"]
    assert seen["fc/linear#0"].gradient["norm"] == pytest.approx(
        float(np.linalg.norm(seen.gradient("fc/linear#0").asnumpy()))
    )
    recording = Recording.open(seen.save(tmp_path / "inspected"))
    (rank,) = recording.ranks
    assert {site.address for site in rank.sites.values()} >= {"fc/linear#0:out", "fc/linear#0:grad"}
    value = next(value for value in rank.values if value.site == "fc/linear#0:out")
    assert rank.load(value).tolist() == seen.value("fc/linear#0").asnumpy().tolist()


def test_what_would_be_compiled_shows_its_ops() -> None:
    @mindspore.jit  # type: ignore[untyped-decorator]
    def compiled(x: Any) -> Any:
        return ops.log(ops.exp(x)) * 2

    seen = tensonde.inspect(compiled, Tensor([1.0, 2.0]), wrt="x")
    assert [op.op for op in seen] == ["exp", "log", "mul"]
    assert seen.gradients["x"].asnumpy() == pytest.approx([2.0, 2.0])
    mindspore.set_context(mode=GRAPH_MODE)
    seen = tensonde.inspect(Net(), images()[0])
    assert [op.op for op in seen] == ["conv2d", "batch_norm", "relu", "flatten", "linear"]
    assert mindspore.get_context("mode") == GRAPH_MODE


def test_wrong_use_is_told_and_leaves_mindspore_as_it_was() -> None:
    call = nn.Cell.__call__
    with pytest.raises(UsageError, match=r"among the inputs \(x, y\)"):
        tensonde.inspect(add_func, Tensor(1.0), Tensor(1.0), wrt="z")
    with pytest.raises(UsageError, match="only floating-point tensors have gradients"):
        tensonde.inspect(add_func, Tensor(1), Tensor(1), wrt="x")
    with pytest.raises(UsageError, match="something to call"):
        tensonde.inspect(3)
    with pytest.raises(Exception, match="fails here"):
        tensonde.inspect(_failing, images()[0], wrt=0)
    assert nn.Cell.__call__ is call
    assert tensonde.inspect(lambda x: x * 2, Tensor(3.0), wrt=0).gradients["x"] == 2


def _failing(x: Any) -> Any:
    Net()(x)
    raise ValueError("fails here")


WATCHED = """
import numpy as np, mindspore as ms, tensonde
from mindspore import nn, ops, Tensor
ms.set_seed(1)
net = nn.Dense(4, 2)
optimizer = nn.SGD(net.trainable_params(), 0.1)
x = Tensor(np.ones((3, 4), np.float32))
step = ms.value_and_grad(lambda x: net(x).square().mean(), None, optimizer.parameters)
for k in range(5):
    if k == 2:
        assert [op.op for op in tensonde.inspect(net, x)] == ["linear"]
    loss, gradients = step(x)
    optimizer(gradients)
print(float(loss))
"""


def test_inside_of_a_training_that_is_watched(foundry: Foundry, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    bare = foundry.bare(WATCHED, tmp_path / "bare")
    ran = foundry.watched(WATCHED, tmp_path)
    assert ran.code == bare.code == 0, ran.err + bare.err
    assert ran.out == bare.out
    assert (ran.session["steps"], ran.session["failures"]) == (5, {})
