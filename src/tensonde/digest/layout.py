"""What a digest is: the fields of one row, in memory and in recordings.

The C kernel writes this layout; `reference.py` defines the meaning of every field.
NaN and Inf are counted apart, and every other statistic is over the finite values only
(`min`, `max`, `mean`, `std`, `absmax`, `absmean` are NaN when there is no finite value; `norm` is 0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

EXPONENT_BINS = 32
"""Bins of the magnitude histogram: bin i counts finite non-zero values with 2**(2*i-40) <= |x| < 2**(2*i-38);
the first and last bins also take what lies beyond."""
EXPONENT_SAMPLE = 512
"""The histogram looks at no more elements than this: those whose logical (C order) index is a multiple of
ceil(count / EXPONENT_SAMPLE)."""

COUNTS = ("count", "nan", "pos_inf", "neg_inf", "zero", "negative")
STATS = ("min", "max", "mean", "std", "absmax", "absmean", "norm")

ROW = np.dtype(
    [
        ("step", "<i8"),
        ("site", "<i4"),
        ("call", "<i4"),
        ("phase", "u1"),
        ("dtype", "u1"),
        ("flags", "<u2"),
        ("reserved", "<u4"),
        *((name, "<i8") for name in COUNTS),
        *((name, "<f8") for name in STATS),
        ("exponents", "<u2", (EXPONENT_BINS,)),
    ]
)
assert ROW.itemsize == 192

PARTIAL = 1
"""In `flags`: computed by a compiled graph. Only `count`, `absmax` and maybe `min`, `max`, `norm` are known (others are NaN
or 0), and `nan`, `pos_inf`, `neg_inf` are 1 where there are any."""
UNSIGNED = 2
"""In `flags`: the sign of the infinities is not known; they are counted under `neg_inf`."""

COMPUTED_BY = ("flags", "absmax")
"""The columns that `not_computed` reads beside the field itself."""

DTYPES = (
    "float64", "float32", "float16", "bfloat16",
    "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint64", "uint32", "uint16", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""Names by code: `ROW["dtype"]` indexes this tuple. Append only. A complex tensor is digested as the
magnitudes |z|, with `negative` 0; an element is NaN if either part is, else infinite if either is."""


def of_one(field: Callable[[str], Any]) -> Any:
    """The value of a tensor of one element, such as a loss, from its digest: the infinities come back. `field` gives a field
    of one row or a column of many."""
    high, low, nan = field("pos_inf") > 0, field("neg_inf") > 0, field("nan") > 0
    return np.where(high & ~low & ~nan, np.inf, np.where(low & ~high & ~nan, -np.inf, field("mean")))


def not_computed(name: str, field: Callable[[str], Any]) -> Any:
    """Whether a stored field says nothing: compiled graphs leave most out. `field` gives a field of one row or a column of many."""
    partial = (field("flags") & PARTIAL) > 0
    if name in STATS:
        return partial & np.isnan(field(name))
    if name == "zero":
        return partial & (field("absmax") != 0)
    return partial & (name == "negative")
