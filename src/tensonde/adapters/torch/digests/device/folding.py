"""From what a device has summed up, row by row of its buffer, to digests: the end of `staging`'s reductions, on the host and in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import EXPONENT_BINS, EXPONENT_SAMPLE, ROW

Array = NDArray[Any]

PARTS = (
    "low",
    "high",
    "nan",
    "pos_inf",
    "neg_inf",
    "negative",
    "nonzero",
    "scale",
    "mean",
    "abssum",
    "norm",
    "apart",
    "rest",
)
"""What the device gives of each row of the buffer, in this order. Sums are of values divided by `scale`, the power of two below the largest magnitude of the row;
`apart` is the norm of the distances from the row's mean, `rest` their sum: what rounding the mean has left over."""


def sampled(count: int) -> tuple[int, int]:
    """Of a tensor of so many elements: the stride of those that the histogram looks at, and how many these are."""
    stride = max(1, -(-count // EXPONENT_SAMPLE))
    return stride, -(-count // stride)


def fold(parts: Array, samples: Array, counts: Array, width: int) -> Array:
    """ROWs of tensors of these sizes, none of them empty. `parts` has a line for each of PARTS and a column for each row of the buffer, where every tensor
    begins a new row of `width` elements and NaN fills up its last one. `samples` are the sampled elements of all, one after the other."""
    rows = np.zeros(len(counts), ROW)
    if not len(counts):
        return rows
    lines = -(-counts // width)
    begins = np.concatenate(([0], np.cumsum(lines)[:-1]))
    part = dict(zip(PARTS, parts.astype(np.float64), strict=True))
    part["nan"][begins + lines - 1] -= lines * width - counts
    bad = part["nan"] + part["pos_inf"] + part["neg_inf"]
    held = np.full(len(bad), float(width))
    held[begins + lines - 1] -= lines * width - counts
    finite = held - bad
    add = np.add.reduceat
    rows["count"] = counts
    for name in ("nan", "pos_inf", "neg_inf"):
        rows[name] = add(part[name], begins)
    rows["negative"] = add(part["negative"] - part["neg_inf"], begins)
    padding = lines * width - counts
    rows["zero"] = counts - (add(part["nonzero"], begins) - padding)
    with np.errstate(all="ignore"):
        _sums(rows, part, finite, begins)
    rows["exponents"] = _histograms(samples, counts)
    return rows


def _sums(rows: Array, part: dict[str, Array], finite: Array, begins: Array) -> None:
    add = np.add.reduceat
    of = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(finite))))
    some = finite > 0
    largest = np.maximum.reduceat(np.where(some, part["scale"], 0.0), begins)
    unit = np.where(largest > 0, largest, 1.0)
    scale = np.where(some, part["scale"], 0.0) / unit[of]
    n = add(finite, begins)
    low, high = np.minimum.reduceat(part["low"], begins) + 0.0, np.maximum.reduceat(part["high"], begins) + 0.0
    own = np.where(some, part["mean"] + part["rest"] / np.where(some, finite, 1.0), 0.0) * scale
    mean = add(own * finite, begins) / n
    rest = np.square(part["rest"]) / np.where(some, finite, 1.0)
    within = np.where(some, np.maximum(np.square(part["apart"]) - rest, 0.0), 0.0) * np.square(scale)
    apart = within + finite * np.square(own - np.where(some, mean[of], 0.0))
    most = np.maximum(np.abs(low), np.abs(high))
    same = low == high
    rows["min"], rows["max"], rows["absmax"] = low, high, most
    rows["mean"] = np.where(same, low, mean * unit)
    rows["std"] = np.where(same, 0.0, np.sqrt(add(apart, begins) / n) * unit)
    rows["absmean"] = np.where(same, most, add(np.where(some, part["abssum"], 0.0) * scale, begins) / n * unit)
    norm = np.sqrt(add(np.square(np.where(some, part["norm"], 0.0) * scale), begins)) * unit
    rows["norm"] = np.where(same, most * np.sqrt(n), norm)
    nothing = n == 0
    for name in ("min", "max", "mean", "std", "absmax", "absmean"):
        rows[name][nothing] = np.nan
    rows["norm"][nothing] = 0.0


def _histograms(samples: Array, counts: Array) -> Array:
    sizes = np.array([sampled(int(count))[1] for count in counts])
    of = np.repeat(np.arange(len(counts)), sizes)
    counted = np.isfinite(samples) & (samples != 0)
    bins = np.clip((np.frexp(samples[counted].astype(np.float64))[1] + 39) >> 1, 0, EXPONENT_BINS - 1)
    flat = np.bincount(of[counted] * EXPONENT_BINS + bins, minlength=len(counts) * EXPONENT_BINS)
    return flat.reshape(len(counts), EXPONENT_BINS)
