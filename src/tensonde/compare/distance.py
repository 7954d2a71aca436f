"""How far two tensors are apart, by their digests and sketches, and how far rounding alone may put them.

A sketch (see docs/compare.md) tells the distance in norm and so the cosine. Without sketches only a lower bound is
known: what the statistics differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Stats = Mapping[str, float]
Vector = np.ndarray[Any, np.dtype[np.float64]]

EPSILON = {"float64": 2.3e-16, "float32": 1.2e-7, "float16": 9.8e-4, "bfloat16": 7.9e-3, "complex64": 1.2e-7}
_FLOAT8 = 0.125


def epsilon(dtype: str, other: str = "") -> float:
    """The rounding unit of the coarser of two dtypes; 0 for integers, which do not round."""
    return max(_epsilon(dtype), _epsilon(other))


def _epsilon(dtype: str) -> float:
    return EPSILON.get(dtype, _FLOAT8 if dtype.startswith("float8") else 0.0)


@dataclass(frozen=True, slots=True)
class Distance:
    """`relative` is |a - b| / max(|a|, |b|) in the 2-norm (inf where the sizes differ), `absolute` is |a - b|."""

    relative: float
    absolute: float
    cosine: float
    max_abs: float
    sketched: bool

    def evidence(self) -> dict[str, float]:
        found = {"max_abs": self.max_abs, "cosine": self.cosine, "rel_l2": self.relative}
        return {name: value for name, value in found.items() if not math.isnan(value)}


SAME = Distance(0.0, 0.0, 1.0, 0.0, True)
APART = Distance(math.inf, math.inf, math.nan, math.nan, False)


def sketch(stats: Stats) -> Vector | None:
    """The sketch among the fields of a digest, if it has one."""
    if "sketch.0" not in stats:
        return None
    found: list[float] = []
    while (value := stats.get(f"sketch.{len(found)}")) is not None:
        found.append(value)
    return np.array(found)


def distance(a: Stats, b: Stats) -> Distance:
    if not a or not b or a["count"] != b["count"]:
        return APART
    largest = max(a["norm"], b["norm"])
    ends = max(abs(_finite(a["min"]) - _finite(b["min"])), abs(_finite(a["max"]) - _finite(b["max"])))
    norms = abs(a["norm"] - b["norm"])
    one, other = sketch(a), sketch(b)
    sketched = one is not None and other is not None
    if one is not None and other is not None:
        apart = math.sqrt(float(np.mean((one - other) ** 2)))
        apart = max(apart, norms)
    else:
        root = math.sqrt(max(a["count"], 1.0))
        fields = [abs(_finite(a[name]) - _finite(b[name])) for name in ("mean", "absmean", "std")]
        apart = max(norms, ends, *(value * root for value in fields))
    relative = apart / largest if largest > 0 else 0.0
    if any(a[name] != b[name] for name in ("nan", "pos_inf", "neg_inf")):
        return Distance(max(relative, 1.0), apart, math.nan, ends, sketched)
    product = a["norm"] * b["norm"]
    cosine = math.nan
    if product > 0 and sketched:
        cosine = max(-1.0, min(1.0, (a["norm"] ** 2 + b["norm"] ** 2 - apart**2) / (2 * product)))
    return Distance(relative, apart, cosine, ends, sketched)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def rms(stats: Stats) -> float:
    return stats["norm"] / math.sqrt(max(stats["count"], 1.0)) if stats else 0.0


AMPLIFICATION = 100.0
"""By so much may a sound computation enlarge a relative difference of its inputs."""


def floor(dtype: str, length: float, ops: int = 1) -> float:
    """The relative difference that rounding may make in `ops` ops that sum up to `length` products."""
    return dtype_floor(dtype) * (1 + math.sqrt(max(length, 1.0)) / 16) * math.sqrt(max(ops, 1))


def dtype_floor(dtype: str) -> float:
    return 8 * epsilon(dtype)
