"""From numpy to JSON: fast, and with words for what JSON cannot hold."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from fastapi import Response

from tensonde.store.files import dump_json

Array = np.ndarray[Any, Any]


def number(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def numbers(array: Array) -> list[Any]:
    """Nested lists of what JSON can hold. A complex number is its magnitude."""
    if array.dtype.kind == "c":
        array = np.abs(array)
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.dtype.kind not in "f":
        found: list[Any] = array.tolist()
        return found
    if array.dtype == np.float32 or array.dtype == np.float16:
        array = _shortest(array)
    if np.isfinite(array).all():
        finite: list[Any] = array.tolist()
        return finite
    flat = array.ravel()
    listed: list[Any] = flat.tolist()
    for k in np.flatnonzero(~np.isfinite(flat)).tolist():
        listed[k] = number(flat[k])
    if array.ndim <= 1:
        return listed
    width = array.shape[-1]
    return [listed[k : k + width] for k in range(0, len(listed), width)] if width else [[] for _ in array]


def _shortest(array: Array) -> Array:
    """0.1 of float32 as 0.1 and not as 0.10000000149011612: what the reader sees is what the dtype holds."""
    return (
        array.astype(np.float64)
        if array.size > 4096
        else np.array([float(str(x)) for x in array.ravel()]).reshape(array.shape)
    )


class Json(Response):
    """An answer that is encoded as it is: its shape is declared by the route's model, and tests hold it to that."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            return msgspec.json.encode(content, order=None)
        except UnicodeEncodeError:  # half of a character, in a file name or a damaged recording
            return dump_json(content)
