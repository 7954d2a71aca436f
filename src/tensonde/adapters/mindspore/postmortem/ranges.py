"""Which index is not in its table, or which label is no class, from the tensors that the frames hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensonde.adapters.mindspore.tensors import is_floating, is_tensor, values_of

_LABELS = ("target", "labels", "label", "y")


def in_scope(variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of values by name: the first whole numbers that do not fit the floats beside them."""
    held = {name: value for name, value in variables.items() if is_tensor(value)}
    tables = [value for value in held.values() if is_floating(value)]
    whole = {name: value for name, value in held.items() if not is_floating(value)}
    return next((found for name, value in whole.items() if (found := _outside(name, value, tables))), None)


def _outside(name: str, indices: Any, tables: list[Any]) -> dict[str, Any] | None:
    labels = name in _LABELS
    values = values_of(indices)
    for table in tables:
        if values is None or not values.size or not table.ndim:
            continue
        size = table.shape[1 if labels and table.ndim > 1 else 0]
        places = np.argwhere((values >= size) | (values < 0))
        if len(places):
            first = tuple(int(k) for k in places[0])
            return {
                "what": "label" if labels else "index",
                "value": int(values[first]),
                "position": list(first),
                "count": len(places),
                "size": int(size),
                "min": int(values.min()),
                "max": int(values.max()),
            }
    return None
