"""Parameters through a traced step: before it, after the backward pass, at the optimizer, and after that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from sonde.adapters.torch.tensors import dtype_name
from sonde.model.trace import WeightRecord

When = Literal["before", "raw", "gradient", "after"]


class Weights:
    """Belongs to a `Tracer`."""

    def __init__(self, measure: Callable[[Tensor], dict[str, float]]) -> None:
        self._measure = measure
        self._records: dict[str, dict[str, Any]] = {}

    def look(self, when: When, live: Iterable[tuple[str, Tensor]]) -> None:
        with torch._C.DisableTorchFunction():
            for name, parameter in live:
                record = self._records.setdefault(name, self._facts(name, parameter))
                if when == "before" and record["before"]:
                    continue
                seen = parameter if when in ("before", "after") else parameter.grad
                if seen is not None:
                    dense = seen.detach()
                    record[when] = self._measure(dense.to_dense() if dense.is_sparse else dense)

    def _facts(self, name: str, parameter: Tensor) -> dict[str, Any]:
        return {
            "name": name,
            "shape": tuple(parameter.shape),
            "dtype": dtype_name(parameter),
            "trainable": parameter.requires_grad,
            "before": {},
        }

    def records(self) -> tuple[WeightRecord, ...]:
        return tuple(WeightRecord(**record) for record in self._records.values())
