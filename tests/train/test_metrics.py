"""Metrics: the seed's number, and agreement with arithmetic written out in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensonde.errors import UsageError

pytest.importorskip("torchmetrics")

from train_sample import parts

from tensonde.train import Metric, Model
from tensonde.train.metrics import (
    F1,
    MAE,
    MSE,
    RMSE,
    Accuracy,
    ConfusionMatrix,
    CosineSimilarity,
    Loss,
    Perplexity,
    Precision,
    Recall,
    Tolerance,
    TopKCategoricalAccuracy,
    get_metric_fn,
    named,
    names,
)

X = np.array([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]])
Y = np.array([1, 0, 1])


@pytest.mark.parametrize("kind", [torch.tensor, np.array, lambda a: a.tolist()])
def test_the_example_of_the_guide(kind: Any) -> None:
    metric = Accuracy()
    metric.clear()
    metric.update(kind(X), kind(Y))
    assert round(metric.eval(), 4) == 0.6667


def test_one_hot_labels_and_several_batches() -> None:
    metric = Accuracy()
    for x, y in zip(X, Y, strict=True):
        metric.update(x[None], np.eye(2)[[y]])
    assert metric.eval() == pytest.approx(2 / 3)
    metric.clear()
    with pytest.raises(UsageError, match="has seen no batch"):
        metric.eval()


def test_per_class() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(200, 4)).astype("f4"), rng.integers(0, 4, 200)
    said = scores.argmax(1)
    matrix = np.zeros((4, 4), int)
    np.add.at(matrix, (labels, said), 1)
    right = matrix.diagonal()
    precision, recall = right / matrix.sum(0), right / matrix.sum(1)
    np.testing.assert_array_equal(ConfusionMatrix()(scores, labels), matrix)
    np.testing.assert_allclose(Precision()(scores, labels), precision, rtol=1e-5)
    np.testing.assert_allclose(Recall()(scores, labels), recall, rtol=1e-5)
    np.testing.assert_allclose(F1()(scores, labels), 2 * precision * recall / (precision + recall), rtol=1e-5)
    metric = Recall()
    metric.update(scores, labels)
    assert metric.eval(average=True) == pytest.approx(recall.mean(), rel=1e-5)
    top = np.argsort(-scores, 1)[:, :2]
    assert TopKCategoricalAccuracy(2)(scores, labels) == pytest.approx((top == labels[:, None]).any(1).mean())


def test_of_numbers() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=50).astype("f4"), rng.normal(size=50).astype("f4")
    assert MAE()(a, b) == pytest.approx(np.abs(a - b).mean(), rel=1e-5)
    assert MSE()(a, b) == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert RMSE()(a, b) == pytest.approx(((a - b) ** 2).mean() ** 0.5, rel=1e-5)
    assert Tolerance(rtol=0.01)(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.001, 2.5, 3.0, 4.03])) == 0.75
    assert CosineSimilarity()(np.eye(2), np.array([[1.0, 1.0], [0.0, 2.0]])) == pytest.approx((0.5**0.5 + 1) / 2)
    metric = Loss()
    for value in (1.0, 2.0, 6.0):
        metric.update(torch.tensor(value))
    assert metric.eval() == 3.0
    scores = torch.randn(3, 5, 7)
    labels = torch.randint(0, 7, (3, 5))
    expected = nn.functional.cross_entropy(scores.reshape(-1, 7), labels.reshape(-1)).exp().item()
    assert Perplexity()(scores, labels) == pytest.approx(expected, rel=1e-5)


def test_several_labels() -> None:
    said, true = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]]), np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]])
    assert Accuracy("multilabel")(said, true) == pytest.approx(2 / 3)
    np.testing.assert_allclose(Precision("multilabel")(said, true), [1, 1, 0.5])


def test_by_name() -> None:
    assert isinstance(get_metric_fn("topk", 3), TopKCategoricalAccuracy)
    assert {"accuracy", "loss", "precision", "recall", "F1", "tolerance", "mae", "mse"} <= set(names())
    with pytest.raises(UsageError, match="did you mean 'accuracy'"):
        named({"acuracy"})
    with pytest.raises(UsageError, match="has no clear, update and eval"):
        named({"mine": 3})


def test_model_gives_the_dictionary() -> None:
    import torchmetrics

    class Seen(Metric):
        def clear(self) -> None:
            self.count = 0

        def update(self, *inputs: Any) -> None:
            self.count += len(inputs[1])

        def eval(self) -> int:
            return self.count

    network, loss_fn, _, loader = parts()
    metrics = {
        "accuracy": Accuracy(),
        "loss": Loss(),
        "f1_score": F1(),
        "theirs": torchmetrics.classification.MulticlassAccuracy(2, average="micro"),
        "seen": Seen(),
    }
    result = Model(network, loss_fn, metrics=metrics).eval(loader)
    assert list(result) == list(metrics)
    assert result["theirs"] == result["accuracy"]
    assert result["seen"] == 32
    again = Model(network, loss_fn, metrics={"accuracy", "loss"}).eval(loader)
    assert again["accuracy"] == result["accuracy"]
    assert again["loss"] == pytest.approx(result["loss"])


@pytest.mark.parametrize(
    ("scores", "labels"),
    [(np.zeros((3, 2)), np.zeros(4)), (np.zeros((3, 2, 2)), np.zeros(3)), (np.zeros(3), np.zeros(2))],
)
def test_shapes_that_do_not_fit(scores: Any, labels: Any) -> None:
    with pytest.raises(UsageError, match="Accuracy got predictions"):
        Accuracy()(scores, labels)
