"""Whether two things belong together row by row, and whether one can be learnt from the other: numbers, without a model.

`related` compares what stands side by side with all the ways in which the rows could be shuffled: their mean and spread are known exactly, so nothing
is drawn. Outputs that say anything about their targets stand many deviations apart from that; others do not, whatever their scale.
`learnt` lets a plain learner (least squares on the features and on random functions of them) learn one half of the rows, and asks `related` of what it says of the other half. It
is no good model. It is one that does not depend on the program's.
"""

from __future__ import annotations

import numpy as np

from tensonde.experiments.step import Array

FEWEST = 48
"""Rows of which something is said."""
MOST_ROWS, MOST_FEATURES = 1024, 1024
MOST_CLASSES = 256
FUNCTIONS = 192


def related(a: Array, b: Array) -> float | None:
    """How many deviations the sum of products of rows lies above that of shuffled rows; None where one of them is the same in all rows."""
    a, b = _centred(a), _centred(b)
    n = len(a)
    if n < 2 or a.shape != b.shape:
        return None
    variance = float(np.square(a @ b.T).sum()) / (n - 1)
    scale = float(np.square(a).sum() * np.square(b).sum())
    if not np.isfinite(variance) or variance <= 1e-12 * scale / (n - 1) or scale <= 0:
        return None
    return float((a * b).sum() / np.sqrt(variance))


def learnt(x: Array, y: Array, x_other: Array | None = None, y_other: Array | None = None) -> float | None:
    """What is learnt of these rows says something of others: of their second half, or of those that are given. In deviations."""
    if len(x) < FEWEST:
        return None
    if x_other is None or y_other is None:
        # Drawn, so that an order in the data is no matter: every other row has classes of its own where they take turns.
        order = np.random.Generator(np.random.PCG64(6)).permutation(len(x))
        ours, others = order[::2], order[1::2]
        x, x_other, y, y_other = x[ours], x[others], y[ours], y[others]
    said = _said(_flat(x), _flat(y), _flat(x_other))
    return None if said is None else related(said, _flat(y_other))


def _said(x: Array, y: Array, x_other: Array) -> Array | None:
    mean, spread = x.mean(0), x.std(0)
    used = spread > 1e-12
    if not used.any():
        return None
    x, x_other = (((part - mean) / np.where(used, spread, 1))[:, used] for part in (x, x_other))
    draw = np.random.Generator(np.random.PCG64(5))
    turn = draw.standard_normal((x.shape[1], FUNCTIONS)) / np.sqrt(x.shape[1])
    shift = draw.standard_normal(FUNCTIONS)
    x, x_other = (np.concatenate([part, np.tanh(1.5 * (part @ turn) + shift)], 1) for part in (x, x_other))
    centre = y.mean(0)
    n = len(x)
    kernel = x @ x.T
    kernel[np.diag_indices(n)] += 0.1 * float(np.trace(kernel)) / n + 1e-12
    return np.asarray(x_other @ (x.T @ np.linalg.solve(kernel, y - centre)) + centre)


def features(array: Array) -> Array | None:
    """Rows of numbers, where they are few enough; every so many-th column of wide ones."""
    if array.ndim < 1 or len(array) < 2:
        return None
    flat = _flat(array[:MOST_ROWS])
    if flat.shape[1] > MOST_FEATURES:
        flat = flat[:, :: -(-flat.shape[1] // MOST_FEATURES)]
    return flat if np.isfinite(flat).all() else None


def classes(array: Array, most: int | None = None) -> Array | None:
    """Whole numbers, one for each row, as columns of zeros and ones."""
    if array.ndim != 1 or not len(array):
        return None
    values = array.astype(np.int64)
    size = int(values.max()) + 1 if most is None else most
    if values.min() < 0 or values.max() >= size or size > MOST_CLASSES:
        return None
    return np.eye(size)[values]


def _flat(array: Array) -> Array:
    return np.asarray(array, dtype=np.float64).reshape(len(array), -1)


def _centred(array: Array) -> Array:
    flat = _flat(array)
    return np.asarray(flat - flat.mean(0))
