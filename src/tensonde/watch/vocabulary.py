"""The words of the condition language: digest fields, fields derived from them, and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.float64]
Get: TypeAlias = Callable[[str], Column]

STORED = {
    "step": "optimizer step",
    "call": "index of the call within the step, from 0",
    "count": "elements",
    "nan": "NaN elements",
    "pos_inf": "+Inf elements",
    "neg_inf": "-Inf elements",
    "zero": "elements equal to 0",
    "negative": "elements below 0",
    "min": "smallest finite value",
    "max": "largest finite value",
    "mean": "mean of the finite values",
    "std": "standard deviation of the finite values",
    "absmax": "largest magnitude",
    "absmean": "mean magnitude",
    "norm": "Euclidean norm",
}

DERIVED: dict[str, tuple[str, Callable[[Get], Column]]] = {
    "inf": ("infinite elements, either sign", lambda get: get("pos_inf") + get("neg_inf")),
    "nonfinite": ("NaN and infinite elements", lambda get: get("nan") + get("inf")),
    "finite": ("finite elements", lambda get: get("count") - get("nonfinite")),
    "nans": ("share of NaN, 0 to 1", lambda get: get("nan") / get("count")),
    "infs": ("share of Inf, 0 to 1", lambda get: get("inf") / get("count")),
    "zeros": ("share of zeros, 0 to 1", lambda get: get("zero") / get("count")),
    "negatives": ("share of negatives, 0 to 1", lambda get: get("negative") / get("count")),
    "rms": ("root mean square of the finite values", lambda get: get("norm") / np.sqrt(get("finite"))),
    "range": ("max - min", lambda get: get("max") - get("min")),
}

CONTEXT = {
    "update_ratio": "at `update` sites: absmean / (absmean of the latest `value` before it + 1e-9); else NaN",
    "fed": "at parameters: elements that the owning module output in this step, 0 if none; elsewhere NaN",
    "loss": "the latest loss seen; NaN before the first",
    "scaled": "1 while the training uses loss scaling (fp16 GradScaler), else 0",
    "differs": "1 where the ranks of a training hold different values there, 0 where they hold the same",
}
"""Fields that look beyond the row; only the engine knows them."""

FIELDS = (*STORED, *DERIVED, *CONTEXT)
COUNTS = frozenset({"count", "nan", "pos_inf", "neg_inf", "zero", "negative", "inf", "nonfinite", "finite", "fed"})

HISTORY = {
    "avg": "mean of the last n",
    "med": "median of the last n",
    "lowest": "smallest of the last n",
    "highest": "largest of the last n",
    "trend": "least-squares slope per observation over the last n",
    "prev": "the n-th before (n may be left out: 1)",
}
MAX_HISTORY = 1000
PLAIN = {
    "abs": "magnitude",
    "sqrt": "square root",
    "log10": "decimal logarithm",
    "min": "smallest of two or more numbers",
    "max": "largest of two or more numbers",
}
FUNCTIONS = (*HISTORY, *PLAIN, "seen", "inside", "spread")
