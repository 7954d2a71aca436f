"""The meaning of every statistic of a digest, in plain numpy.

The C kernel is tested against this file, and `fallback.py` uses it where there is no kernel. All sums are in
float64, `std` is of the population (divided by n) and in two passes; a scale that is a power of two keeps the
squares of huge and tiny values in range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import DTYPES, EXPONENT_BINS, EXPONENT_SAMPLE, ROW

Array = NDArray[Any]


def digest_array(array: Array, dtype_name: str | None = None) -> Array:
    """The digest of one array, as an array of one ROW whose step, site, call and phase are 0.

    `dtype_name` is one of DTYPES; it is needed for bfloat16 and float8, which come as their bits.
    """
    name = dtype_name or array.dtype.name
    row = digest_values(_values(array, name))
    row["dtype"] = DTYPES.index(name)
    return row


def digest_difference(new: Array, old: Array, dtype_name: str | None = None) -> Array:
    """The digest of new - old: subtracted in float32 for floats of at most 32 bits, else in float64."""
    name = dtype_name or new.dtype.name
    width = np.float32 if name in ("float32", "float16", "bfloat16") or name in FLOAT8 else np.float64
    with np.errstate(all="ignore"):
        difference = _values(new, name).astype(width) - _values(old, name).astype(width)
    row = digest_values(difference.astype(np.float64))
    row["dtype"] = DTYPES.index(name)
    return row


def digest_values(values: Array) -> Array:
    """The digest of float64 values in logical order."""
    row = np.zeros(1, ROW)
    values = values.reshape(-1)
    finite = values[np.isfinite(values)]
    row["count"] = values.size
    row["nan"] = np.count_nonzero(np.isnan(values))
    row["pos_inf"] = np.count_nonzero(values == np.inf)
    row["neg_inf"] = np.count_nonzero(values == -np.inf)
    row["zero"] = np.count_nonzero(finite == 0)
    row["negative"] = np.count_nonzero(finite < 0)
    row["exponents"] = _exponents(values)
    if finite.size:
        _fill_finite(row, finite)
    else:
        for field in ("min", "max", "mean", "std", "absmax", "absmean"):
            row[field] = np.nan
    return row


def _fill_finite(row: Array, finite: Array) -> None:
    low, high = float(finite.min()) + 0.0, float(finite.max()) + 0.0
    most = max(abs(low), abs(high))
    row["min"], row["max"], row["absmax"] = low, high, most
    if low == high:
        row["mean"], row["std"], row["absmean"] = low, 0.0, most
        with np.errstate(over="ignore"):
            row["norm"] = most * np.sqrt(finite.size)
        return
    shift = int(np.clip(np.frexp(most)[1], -1000, 1000))
    with np.errstate(all="ignore"):
        scaled = np.ldexp(finite, -shift)
        mean = scaled.mean()
        row["mean"] = np.ldexp(mean, shift)
        apart = scaled - mean
        rest = apart.mean()  # what rounding the mean left over: matters for values a few bits apart
        row["std"] = np.ldexp(np.sqrt(np.mean(np.square(apart)) - rest * rest), shift)
        row["absmean"] = np.ldexp(np.abs(scaled).mean(), shift)
        row["norm"] = np.ldexp(np.sqrt(np.sum(np.square(scaled))), shift)


def _exponents(values: Array) -> Array:
    stride = max(1, -(-values.size // EXPONENT_SAMPLE))
    sample = values[::stride]
    sample = sample[np.isfinite(sample) & (sample != 0)]
    exponent = np.frexp(sample)[1] - 1  # |x| = m * 2**exponent with 1 <= m < 2
    bins = np.clip((exponent + 40) >> 1, 0, EXPONENT_BINS - 1)
    return np.bincount(bins, minlength=EXPONENT_BINS).astype(np.uint16)


FLOAT8 = {"float8_e4m3fn": (3, 7), "float8_e5m2": (2, 15), "float8_e4m3fnuz": (3, 8), "float8_e5m2fnuz": (2, 16)}
"""Bits of the mantissa, and the bias of the exponent."""


def float8_numbers(name: str) -> Array:
    """What the 256 patterns of bits stand for."""
    bits = np.arange(256)
    if name == "float8_e8m0fnu":
        return np.where(bits == 255, np.nan, np.ldexp(1.0, bits - 127))
    width, bias = FLOAT8[name]
    size = bits & 0x7F
    exponent, rest = size >> width, size & ((1 << width) - 1)
    normal = np.ldexp(1.0 + rest / (1 << width), exponent - bias)
    value = np.where(exponent > 0, normal, np.ldexp(rest / (1 << width), 1 - bias))
    if name == "float8_e5m2":
        value = np.where(size > 0x7C, np.nan, np.where(size == 0x7C, np.inf, value))
    elif name == "float8_e4m3fn":
        value = np.where(size == 0x7F, np.nan, value)
    else:
        value = np.where(bits == 0x80, np.nan, value)
    return np.where(bits & 0x80, -value, value)


def _values(array: Array, name: str) -> Array:
    """The elements as float64, in logical order."""
    if name.startswith("float8"):
        return np.asarray(float8_numbers(name)[array.reshape(-1).view(np.uint8)])
    if name == "bfloat16":
        bits = np.asarray(array.reshape(-1).view(np.uint16), np.uint32) << 16
        with np.errstate(all="ignore"):  # signalling NaN
            return bits.view(np.float32).astype(np.float64)
    if name == "complex64":
        wide = array.astype(np.complex128).reshape(-1)
        with np.errstate(all="ignore"):
            return np.asarray(np.sqrt(wide.real * wide.real + wide.imag * wide.imag))
    if name == "complex128":
        with np.errstate(all="ignore"):
            size = np.hypot(array.real, array.imag).reshape(-1)
        size[(np.isnan(array.real) | np.isnan(array.imag)).reshape(-1)] = np.nan
        return np.asarray(size)
    if name == "bool":
        return np.asarray(array != 0, np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        return np.asarray(array, np.float64).reshape(-1)
