"""Metrics of numbers: how far predictions are from what they should be."""

from __future__ import annotations

from typing import Any

from tensonde.errors import UsageError
from tensonde.train.metrics.metric import Metric, Wrapped, tensor, torchmetrics


class _Regression(Wrapped):
    what = ""
    options: dict[str, Any] = {}  # noqa: RUF012  never changed

    def __init__(self) -> None:
        super().__init__(getattr(torchmetrics().regression, self.what)(**self.options))

    def update(self, *inputs: Any) -> None:
        prediction, target = (tensor(value).float() for value in inputs)
        super().update(prediction.contiguous(), target.contiguous())


class MAE(_Regression):
    """The mean of the absolute errors."""

    what = "MeanAbsoluteError"


class MSE(_Regression):
    """The mean of the squared errors."""

    what = "MeanSquaredError"


class RMSE(_Regression):
    """The root of the mean of the squared errors."""

    what = "MeanSquaredError"
    options = {"squared": False}  # noqa: RUF012


class CosineSimilarity(_Regression):
    """The mean over samples of the cosine between prediction and target."""

    what = "CosineSimilarity"
    options = {"reduction": "mean"}  # noqa: RUF012


class Tolerance(Metric):
    """The share of values within `atol` + `rtol` · |target| of their target."""

    def __init__(self, rtol: float = 1e-3, atol: float = 0.0) -> None:
        if rtol < 0 or atol < 0:
            raise UsageError(f"a tolerance must not be negative; rtol is {rtol} and atol {atol}.")
        self.rtol, self.atol = rtol, atol
        self._mean = Wrapped(torchmetrics().MeanMetric())

    def clear(self) -> None:
        self._mean.clear()

    def update(self, *inputs: Any) -> None:
        import torch

        prediction, target = (tensor(value).float() for value in inputs)
        self._mean.update(torch.isclose(prediction, target, rtol=self.rtol, atol=self.atol).float())

    def eval(self) -> Any:
        return self._mean.eval()
