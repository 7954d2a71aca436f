"""Parameters through a traced step: before it, after the backward pass, at the optimizer, and after that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.mindspore.tensors import dtype_name, is_tensor, shape_of, values_of
from tensonde.model.trace import WeightRecord
from tensonde.session.options import Twin

KEPT_BYTES = 1 << 30

When = Literal["before", "raw", "gradient", "after"]


class Weights:
    """Belongs to a `Tracer`. `twin` says how the run is compared with another one."""

    def __init__(self, measure: Callable[[Any], dict[str, float]], twin: Twin) -> None:
        self._measure = measure
        self._transposed, self._faint = frozenset(twin.transposed), twin.faint
        self._records: dict[str, dict[str, Any]] = {}
        self._kept: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {}
        """Values at the optimizer's call, and which elements count."""
        self._room = KEPT_BYTES

    def look(self, when: When, seen: Iterable[tuple[str, Any, Any]]) -> None:
        """Names, parameters, and their values or gradients at that moment."""
        for name, parameter, tensor in seen:
            record = self._records.setdefault(name, self._facts(name, parameter))
            if (when == "before" and record["before"]) or not is_tensor(tensor):
                continue
            array = values_of(tensor)
            if array is None:
                continue
            record[when] = self._measure(self._turned(name, array))
            if when == "gradient":
                self._keep(name, parameter, array)
            elif when == "after" and name in self._kept:
                before, counts = self._kept.pop(name)
                self._room += before.nbytes
                moved = np.where(counts, array.astype(np.float64) - before, 0.0)
                record["moved"] = self._measure(self._turned(name, moved))

    def _keep(self, name: str, parameter: Any, gradient: NDArray[Any]) -> None:
        value = values_of(parameter)
        if value is None or value.shape != gradient.shape or value.nbytes > self._room or not value.size:
            return
        self._room -= value.nbytes
        wide = np.abs(gradient.astype(np.float64))
        self._kept[name] = value.copy(), wide >= self._faint * np.sqrt(np.mean(wide**2))

    def _turned(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(array.T) if name in self._transposed and array.ndim == 2 else array

    def _facts(self, name: str, parameter: Any) -> dict[str, Any]:
        shape = shape_of(parameter)
        return {
            "name": name,
            "shape": shape[::-1] if name in self._transposed else shape,
            "dtype": dtype_name(parameter),
            "trainable": bool(parameter.requires_grad),
            "before": {},
        }

    def records(self) -> tuple[WeightRecord, ...]:
        return tuple(WeightRecord(**record) for record in self._records.values())
