"""Does every column of a table tell something of its own?

Columns of a table of numbers that a model is handed are compared with each other. Healthy: they differ. Two columns that are equal in every row, number by number, were taken from the same place,
and what should stand in one of them is missing. Where all columns are one and the same but for an offset and a factor, which a scaler gives each of its own, the table tells one number of each sample.

Not asked of columns with few different values (flags and counts may agree by chance), of images and sequences, and of tables that the step itself makes of others. Rows may be windows of a series: columns
that repeat throughout at one distance are those of a period, and columns that differ by an offset alone those of a trend.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Step

ROWS, VALUES, COLUMNS = 16, 8, 64
"""The fewest rows, and different values of a column; the most columns."""
ALIKE = 1e-3
"""Of a deviation: what rounding makes of a column that is scaled."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    tables = [
        v
        for v in anatomy.inputs
        if v.kind == "float" and len(v.shape) == 2 and v.shape[0] >= ROWS and 2 <= v.shape[1] <= COLUMNS and not v.drawn
    ]
    if not tables:
        raise NotPossible("the model gets no table of numbers")
    for value in tables:
        array = step.array(value.number)
        told = _equal(array)
        names = (value.name or "an input",)
        line = step.last_deed(value.number, "join") or value.made or value.bound
        if told is not None:
            text = f"columns {told[0]} and {told[1]} of {names[0]} are the same in all {len(array)} rows"
            yield Answer(False, text, {"columns": array.shape[1]}, names, line, part="equal columns")
        elif _one(array):
            text = f"all {array.shape[1]} columns of {names[0]} are the same but for their scale"
            yield Answer(False, text, {"columns": array.shape[1]}, names, line, part="one column")
        else:
            yield Answer(True, f"columns of {names[0]} differ", names=names)


def _equal(array: Array) -> tuple[int, int] | None:
    seen: dict[bytes, int] = {}
    for k, column in enumerate(array.T):
        first = seen.setdefault(column.tobytes(), k)
        if first != k and len(np.unique(column)) > VALUES and not _repeats(array, k - first):
            return first, k
    return None


def _repeats(array: Array, period: int) -> bool:
    return bool(np.array_equal(array[:, period:], array[:, :-period]))


def _one(array: Array) -> bool:
    """Three columns or more, all of which differ from row to row, and all alike once they are brought to one scale."""
    if array.shape[1] < 3 or not np.isfinite(array).all() or any(len(np.unique(c)) <= VALUES for c in array.T):
        return False
    wide = array.astype(np.float64)
    offsets, spread = wide - wide[:, :1], wide.std(0).max()
    if np.ptp(offsets, axis=0).max() <= ALIKE * spread < np.abs(offsets).max():
        return False
    scaled = (wide - wide.mean(0)) / wide.std(0)
    return bool((np.abs(scaled - scaled[:, :1]) < ALIKE).all())


COLUMNS_DIFFER = Experiment("columns", "Does every column carry information of its own?", ask, times=3, alone=False)
