"""Samples of a data set that are one and the same memory.

A data set that fills a buffer and returns it (or a view: `torch.from_numpy` copies nothing) gives every sample the values of the last
one. Looked for only after all samples of a batch were found equal, by reading what the data set keeps: no sample is made for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensonde.program.classes import returned_uncopied

FEWEST = 4
"""Kept samples that must lie in the same place."""


def shared(dataset: Any, sample: Tensor) -> dict[str, Any] | None:
    """The buffer behind equal samples, where the data set keeps it: its name, where it is returned, what else holds it."""
    for _ in range(8):
        if not hasattr(dataset, "dataset"):
            break
        dataset = dataset.dataset
    held = dict(getattr(dataset, "__dict__", {}))
    lists = {name: found for name, value in held.items() if (found := _one_memory(value)) is not None}
    arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray | Tensor)}
    kept, memory = next(iter(lists.items()), (None, None))
    buffer = next((name for name, value in arrays.items() if memory is not None and _memory(value) == memory), None)
    if kept is None:
        buffer = next((name for name, value in arrays.items() if _same(value, sample)), None)
    if kept is None and buffer is None:
        return None
    return {
        "dataset": type(dataset).__name__,
        "buffer": buffer,
        "kept_in": kept,
        "line": returned_uncopied(type(dataset), buffer) if buffer else None,
    }


def _one_memory(value: Any) -> int | None:
    """The address of all samples in a list or dictionary, if it is one."""
    items = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else []
    if len(items) < FEWEST:
        return None
    places = {_memory(item[0] if isinstance(item, tuple | list) and item else item) for item in items[:256]}
    found = next(iter(places)) if len(places) == 1 else None
    return found or None


def _memory(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.data_ptr() if value.layout is torch.strided and value.device.type == "cpu" else 0
    return int(value.__array_interface__["data"][0]) if isinstance(value, np.ndarray) and value.size else 0


def _same(value: Any, sample: Tensor) -> bool:
    """Holds just the values of the sample, which are not all one value: that is no coincidence."""
    size = value.numel() if isinstance(value, Tensor) else value.size
    if size != sample.numel() or bool((sample == sample.reshape(-1)[0]).all()):
        return False
    own = torch.as_tensor(value).detach().reshape(-1)
    return bool((own == sample.detach().reshape(-1)).all())
