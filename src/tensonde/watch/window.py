"""History functions: from the last n observations (oldest first, NaN where missing) to one number a row.

Missing observations are left out. Fewer than min(n, 3) of them are too few to say anything: NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensonde.watch.vocabulary import Column

ENOUGH = 3


def _mean(window: Column, have: Column) -> Column:
    return np.asarray(np.nansum(window, axis=1) / have)


def _median(window: Column, have: Column) -> Column:
    ordered = np.sort(window, axis=1)  # NaN goes last
    n = np.maximum(have.astype(np.int64), 1)
    rows = np.arange(len(window))
    return np.asarray((ordered[rows, (n - 1) // 2] + ordered[rows, n // 2]) / 2)


def _lowest(window: Column, have: Column) -> Column:
    return np.asarray(np.fmin.reduce(window, axis=1))


def _highest(window: Column, have: Column) -> Column:
    return np.asarray(np.fmax.reduce(window, axis=1))


def _trend(window: Column, have: Column) -> Column:
    known = ~np.isnan(window)
    x = np.where(known, np.arange(window.shape[1], dtype=np.float64), 0.0)
    y = np.where(known, window, 0.0)
    dx = np.where(known, x - (x.sum(axis=1) / have)[:, None], 0.0)
    dy = np.where(known, y - (y.sum(axis=1) / have)[:, None], 0.0)
    return np.asarray((dx * dy).sum(axis=1) / (dx * dx).sum(axis=1))


REDUCE: dict[str, Callable[[Column, Column], Column]] = {
    "avg": _mean,
    "med": _median,
    "lowest": _lowest,
    "highest": _highest,
    "trend": _trend,
}


def reduce(function: str, window: Column) -> Column:
    have = (~np.isnan(window)).sum(axis=1).astype(np.float64)
    got = REDUCE[function](window, have)
    return np.where(have >= min(window.shape[1], ENOUGH), got, np.nan)
