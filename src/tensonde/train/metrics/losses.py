"""Metrics of the loss and of what stands for one."""

from __future__ import annotations

from typing import Any

from tensonde.errors import UsageError
from tensonde.train.metrics.metric import Metric, Wrapped, tensor, torchmetrics


class Loss(Metric):
    """The mean of the batches' losses. A NaN among them makes it NaN."""

    of_loss = True

    def __init__(self) -> None:
        self._mean = Wrapped(torchmetrics().MeanMetric(nan_strategy="disable"))

    def clear(self) -> None:
        self._mean.clear()

    def update(self, *inputs: Any) -> None:
        loss = tensor(inputs[0])
        if len(inputs) != 1 or loss.numel() != 1:
            raise UsageError(
                f"Loss.update takes one loss, and got {len(inputs)} things, the first {tuple(loss.shape)}."
            )
        self._mean.update(loss.double().reshape(()))

    def eval(self) -> Any:
        return self._mean.eval()


class Perplexity(Metric):
    """e to the mean cross entropy of next tokens: scores (N, T, C) and labels (N, T); `ignore_label` is left out."""

    def __init__(self, ignore_label: int | None = -100) -> None:
        self._metric = Wrapped(torchmetrics().text.Perplexity(ignore_index=ignore_label))

    def clear(self) -> None:
        self._metric.clear()

    def update(self, *inputs: Any) -> None:
        scores, labels = tensor(inputs[0]).float(), tensor(inputs[1]).long()
        if scores.ndim == 2:
            scores, labels = scores[None], labels.reshape(1, -1)
        self._metric.update(scores, labels)

    def eval(self) -> Any:
        return self._metric.eval()
