"""Parameters through a traced step: before it, after the backward pass, at the optimizer, and after that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.adapters.torch.tensors import dense_of, dtype_name, gradient_of, is_plain, shape_of, values_of
from tensonde.adapters.torch.tracing.measure import Measure
from tensonde.adapters.torch.tracing.own_gradients import OwnGradients
from tensonde.model.trace import WeightRecord

KEPT_BYTES = 1 << 30
SMALL = 1 << 20
"""Elements of a parameter whose update is looked at closely in any traced step; larger ones only for a comparison."""

When = Literal["before", "raw", "gradient", "after"]


class Weights:
    """Belongs to a `Tracer`."""

    def __init__(self, measure: Measure, *, thorough: bool, faint: float, own: OwnGradients | None = None) -> None:
        """`faint`: a gradient of so small a share of the typical one may be rounding alone. `own`: where there are other ranks."""
        self._own = own
        self._faint = faint
        self._measure = measure
        self._thorough = thorough
        self._records: dict[str, dict[str, Any]] = {}
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}
        """Values at the optimizer's call, and which elements count."""
        self._first: dict[int, tuple[Ref[Tensor], int, dict[str, float]]] = {}
        """Parameters as they were before the step, by id: version and digest."""
        self._room = KEPT_BYTES
        self.gradients: dict[int, str] = {}
        """Addresses of gradients, by the id of the tensor."""

    def look(self, when: When, live: Iterable[tuple[str, Tensor]]) -> None:
        with unseen():
            for name, parameter in live:
                if is_lazy(parameter):  # has no shape before the first call
                    continue
                record = self._records.get(name)
                if record is None:
                    record = self._records[name] = self._facts(name, parameter)
                if when == "before" and record["before"]:
                    continue
                seen = parameter if when in ("before", "after") else gradient_of(parameter)
                if seen is not None:
                    if seen is not parameter:
                        self.gradients[id(seen)] = f"{name}:grad"
                    dense = dense_of(seen)
                    if dense is None:
                        continue
                    dense = dense.detach()
                    if when == "gradient":  # most often what the backward pass has left
                        record[when] = self._measure.again(dense, record.get("raw", {}))
                    else:
                        record[when] = self._measure(dense)
                    if when == "before" and self._own is not None:
                        self._own.follow(name, parameter)
                    if when == "before" and is_plain(parameter):
                        self._first[id(parameter)] = Ref(parameter), parameter._version, record[when]
                    if when == "gradient":
                        self._keep(name, parameter, dense)
                    elif when == "after" and name in self._kept:
                        before, counts = self._kept.pop(name)
                        self._room += before.numel() * before.element_size()
                        moved = torch.where(counts, dense.double() - before.double(), 0.0)
                        record["moved"] = self._measure(moved)

    def known(self, tensor: Tensor, version: int) -> dict[str, float] | None:
        """The digest of a parameter of this version, if it was looked at before the step."""
        first = self._first.get(id(tensor))
        return first[2] if first is not None and first[1] == version and first[0]() is tensor else None

    def _keep(self, name: str, parameter: Tensor, gradient: Tensor) -> None:
        value = values_of(parameter)
        if value is None or value.shape != gradient.shape:
            return
        size = value.numel() * value.element_size()
        if value.is_complex() or size > self._room:
            return
        if value.numel() > SMALL and not self._thorough:
            return
        self._room -= size
        wide = gradient.double()
        self._kept[name] = value.detach().clone(), wide.abs() >= self._faint * wide.square().mean().sqrt()

    def _facts(self, name: str, parameter: Tensor) -> dict[str, Any]:
        return {
            "name": name,
            "shape": shape_of(parameter),
            "dtype": dtype_name(parameter),
            "trainable": parameter.requires_grad,
            "before": {},
        }

    def records(self) -> tuple[WeightRecord, ...]:
        own = self._own.sums if self._own is not None else {}
        self.end()
        return tuple(WeightRecord(**record, own=own.get(name, {})) for name, record in self._records.items())

    def end(self) -> None:
        """Nothing more will be asked."""
        if self._own is not None:
            self._own.finish()
