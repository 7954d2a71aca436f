"""The share of a tensor's values inside a range, estimated from its digest.

Exact where the digest decides: a range that holds all of [min, max] or none of it, and the zeros. Otherwise
the magnitude histogram decides: it is over at most 512 sampled elements, its bins are factors of 4 wide
(values are taken to be spread evenly in log|x| within a bin), and where both signs occur they are taken to
have the same magnitudes. Bin edges are exact: values of exactly 1 lie in the bin that begins at 1, so a tanh
stuck at ±1 is told from one at 0.999.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import EXPONENT_BINS
from tensonde.watch.vocabulary import Column


def inside(rows: NDArray[np.void], low: float, high: float) -> Column:
    """Share of all elements with low <= x <= high; NaN and Inf are outside; NaN for an empty tensor."""
    count = rows["count"].astype(np.float64)
    finite = count - rows["nan"] - rows["pos_inf"] - rows["neg_inf"]
    zero, negative = rows["zero"].astype(np.float64), rows["negative"].astype(np.float64)
    bins = rows["exponents"].astype(np.float64)
    total = bins.sum(axis=1, keepdims=True)
    bins = np.divide(bins, total, out=np.zeros_like(bins), where=total > 0)
    below = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(bins, axis=1)], axis=1)
    smallest, largest = rows["min"], rows["max"]
    above_zero = np.where(high >= largest, 1.0, _below(below, bins, high)) - _below(below, bins, low)
    under_zero = np.where(low <= smallest, 1.0, _below(below, bins, -low)) - _below(below, bins, -high)
    got = np.clip(above_zero, 0, 1) * (finite - zero - negative) + np.clip(under_zero, 0, 1) * negative
    got += zero if low <= 0.0 <= high else 0.0
    got = np.where((low <= smallest) & (high >= largest), finite, got)
    got = np.where((low > largest) | (high < smallest), 0.0, got)
    return np.asarray(np.where(count > 0, got / np.maximum(count, 1), np.nan))


def _below(below: Column, bins: Column, magnitude: float) -> Column:
    """Share of non-zero values with |x| < magnitude."""
    if magnitude <= 0:
        return np.zeros(len(below))
    place = (np.log2(magnitude) + 40) / 2
    bin_ = int(np.clip(np.floor(place), 0, EXPONENT_BINS - 1))
    part = float(np.clip(place - bin_, 0.0, 1.0))
    return np.asarray(below[:, bin_] + part * bins[:, bin_], dtype=np.float64)
