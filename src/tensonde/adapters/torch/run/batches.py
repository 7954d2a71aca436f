"""Which samples of the dataset the current batch is made of, so that a bad one can be named."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Subset

from tensonde.adapters.torch.tensors import array_of, is_dense
from tensonde.program.classes import returned_part, written_last
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at
from tensonde.program.parting import last
from tensonde.program.ways import way_of

MOST = 4096
"""Indices of one batch that are kept."""


class Batch:
    """The batch that a loader gave last."""

    def __init__(self, dataset: Any, indices: list[int], given: Any = None) -> None:
        self.dataset = weakref.ref(dataset) if type(dataset).__weakrefoffset__ else lambda: dataset
        self.indices = indices
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        self.kind = type(dataset)
        """What it is, for when it is gone."""
        parts = given.values() if isinstance(given, dict) else given if isinstance(given, list | tuple) else ()
        self.memory = [_memory(part) for part in parts]
        """Where each part of the batch lies."""

    def part_of(self, tensor: Tensor) -> int | None:
        """Which part of the batch a tensor is (or is a view of)."""
        at = _memory(tensor)
        return self.memory.index(at) if at and at in self.memory else None

    def part_line(self, part: int) -> dict[str, Any] | None:
        """The line of the user's `__getitem__` that makes this part."""
        return _sample_line(self.dataset(), part)

    def facts(self) -> dict[str, Any]:
        """For the recording: the dataset's type, the indices, and the line where its samples are made."""
        dataset = self.dataset()
        held = next((found for index in self.indices if (found := _held(dataset, index)) is not None), None)
        source = held["source"] if held is not None and held["source"] is not None else _sample_line(dataset)
        source = source or self._spoilt(sys._getframe(1))
        return {
            "dataset": type(dataset).__name__,
            "indices": self.indices,
            "source": source,
            "attribute": held["attribute"] if held is not None else None,
        }

    def _spoilt(self, frame: FrameType | None) -> dict[str, Any] | None:
        """Of a part of the batch that holds NaN or Inf: the line of the program's text that may have made them, before there was a batch. A function that has no value for some numbers, or, where every row is
        bad, a division."""
        while frame is not None:
            for name, value in list(frame.f_locals.items()) if is_user(frame.f_code) else ():
                if issubclass(type(value), Tensor) and self.part_of(value) is not None and _is_bad(value):
                    way = way_of(frame.f_code.co_filename, frame.f_lineno, name)
                    place = last(way, "domain") or (last(way, "division") if all(map(_is_bad, value[:MOST])) else None)
                    return line_at(*place) if place is not None else None
            frame = frame.f_back
        return None


latest: Batch | None = None
"""The last batch of any loader, also from before the session began."""


def _memory(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr() if is_dense(tensor) else 0


def _sample_line(dataset: Any, part: int = 0) -> dict[str, Any] | None:
    place = sample_place(dataset)
    if place is None:
        return None
    path, line = place
    return line_at(path, returned_part(path, line, part) or line)


def sample_place(dataset: Any) -> tuple[str, int] | None:
    """File and first line of the user's `__getitem__`; of the dataset inside, for subsets and the like."""
    for _ in range(8):
        code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
        if code is not None and is_user(code):
            return code.co_filename, code.co_firstlineno
        inner = getattr(dataset, "dataset", None)
        if inner is None:
            return None
        dataset = inner
    return None


def _held(dataset: Any, index: int) -> dict[str, Any] | None:
    """The array in which a dataset keeps this bad sample, and the line of the dataset's code that wrote to it last."""
    for name, array in list(getattr(dataset, "__dict__", {}).items()):
        shape = getattr(array, "shape", None)
        if isinstance(array, np.ndarray | Tensor) and shape and 0 <= index < shape[0] and _is_bad(array[index]):
            return {"attribute": name, "source": written_last(type(dataset), name)}
    return None


def _is_bad(row: Any) -> bool:
    try:
        values = array_of(row.detach().float().cpu()) if isinstance(row, Tensor) else np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return not bool(np.isfinite(values).all())
