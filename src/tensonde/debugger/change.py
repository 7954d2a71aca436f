"""The difference of two arrays of one shape, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = 5


@dataclass(frozen=True, slots=True)
class Change:
    """Over the elements that are finite on both sides; `bad` counts the others.

    `relative` is the norm of the difference over that of the second array.
    `largest` holds (index, first, second).
    """

    count: int
    changed: int
    bad: int
    max_abs: float
    mean_abs: float
    relative: float
    cosine: float
    largest: list[tuple[tuple[int, ...], float, float]]


def compare(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> Change:
    wide = np.complex128 if np.iscomplexobj(first) or np.iscomplexobj(second) else np.float64
    a, b = first.astype(wide), second.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        size = np.where(finite, np.abs(a - b), 0.0)
        x, y = a[finite], b[finite]
        norms = float(np.linalg.norm(x)), float(np.linalg.norm(y))
        cosine = float(np.real(np.vdot(x, y))) / (norms[0] * norms[1]) if all(norms) else float("nan")
        relative = float(np.linalg.norm(x - y)) / norms[1] if norms[1] else (0.0 if not norms[0] else float("inf"))
    order = np.argsort(size, axis=None)[::-1][:LARGEST]
    places = [tuple(int(k) for k in np.unravel_index(flat, size.shape)) for flat in order if size.flat[flat] > 0]
    return Change(
        count=int(a.size),
        changed=int(np.count_nonzero(~same)),
        bad=int(np.count_nonzero(~finite)),
        max_abs=float(size.max(initial=0.0)),
        mean_abs=float(size[finite].mean()) if finite.any() else 0.0,
        relative=relative,
        cosine=cosine,
        largest=[(place, float(np.real(a[place])), float(np.real(b[place]))) for place in places],
    )
