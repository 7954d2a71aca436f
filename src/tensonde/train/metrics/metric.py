"""The base class of metrics, and torchmetrics in its shape."""

from __future__ import annotations

from typing import Any

from tensonde.errors import UsageError
from tensonde.train.extras import need


class Metric:
    """Override `clear` (forget everything), `update` (take a batch) and `eval` (the result so far).

    A metric with `of_loss` is updated with the loss instead of the outputs and the labels.
    """

    of_loss = False

    def clear(self) -> None:
        raise NotImplementedError

    def update(self, *inputs: Any) -> None:
        raise NotImplementedError

    def eval(self) -> Any:
        raise NotImplementedError

    def __call__(self, *inputs: Any) -> Any:
        """Of these inputs alone."""
        self.clear()
        self.update(*inputs)
        return self.eval()


class Wrapped(Metric):
    """A torchmetrics metric."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric
        self.updates = 0

    def clear(self) -> None:
        self.metric.reset()
        self.updates = 0

    def update(self, *inputs: Any) -> None:
        values = [tensor(value) for value in inputs]
        self.metric.to(values[0].device)
        self.metric.update(*values)
        self.updates += 1

    def eval(self) -> Any:
        return result(self.computed())

    def computed(self) -> Any:
        if not self.updates:
            raise UsageError(f"{type(self).__name__} has seen no batch; call update before eval.")
        return self.metric.compute()


def torchmetrics() -> Any:
    return need("torchmetrics", extra="train", what="a metric")


def tensor(value: Any) -> Any:
    """Tensors, arrays and lists are taken; what a network gave is not differentiated here."""
    import torch

    return value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value)


def result(value: Any) -> Any:
    """A number for one value, an array for several."""
    return value.item() if value.numel() == 1 and value.ndim == 0 else value.cpu().numpy()
