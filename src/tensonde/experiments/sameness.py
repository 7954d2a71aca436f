"""Do different samples get different outputs?

The outputs of the model are compared row by row. Healthy: samples that differ get outputs that differ. Where all rows are equal though
the inputs are not, the values are followed back to the op that made them equal. Asked after some steps, for a last layer may
begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Op, Step

FEWEST = 4
EQUAL = 1e-6


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    made = [anatomy.by_samples(number, step.batch) if step.batch else number for number in anatomy.outputs]
    outputs = [number for number in made if len(step.values[number].shape) >= 2]
    inputs = [v for v in anatomy.inputs if v.kind != "bool"]
    differing = {v.shape[0] for v in inputs if v.shape[0] >= FEWEST and not rows_equal(step.array(v.number))}
    asked = [number for number in outputs if step.values[number].shape[0] in differing]
    if not asked or step.loss in asked:
        raise NotPossible("no input of the model differs from sample to sample, row by row")
    equal = [number for number in asked if rows_equal(step.array(number))]
    if len(equal) < len(asked) or not equal:
        yield Answer(True, "outputs differ from sample to sample")
        return
    op = _where(step, anatomy, equal[0])
    yield Answer(
        False,
        "the model gives the same for all samples",
        {"rows": step.values[equal[0]].shape[0]},
        source=op.source if op is not None else None,
        module=op.module if op is not None else "",
        op=op.name if op is not None else "",
    )


def rows_equal(array: Array) -> bool:
    """Up to rounding."""
    if array.ndim == 0 or len(array) < 2:
        return False
    if array.dtype.kind != "f":
        return bool((array == array[:1]).all())
    scale = float(np.abs(array).max())
    return bool(np.isfinite(scale)) and bool((np.abs(array - array[:1]) <= EQUAL * scale).all())


def _where(step: Step, anatomy: Anatomy, value: int) -> Op | None:
    """The op that has rows that differ and gives rows that do not, the first on the way."""
    behind = anatomy.ancestors([value])
    rows = step.values[value].shape[0]
    for op in step.ops:
        out = [n for n in op.outputs if n in behind and n in anatomy.computed and n not in anatomy.weights]
        if not out or op.index > (step.values[value].op or 0):
            continue
        shape = step.values[out[0]].shape
        whole = len(shape) >= 2 and shape[0] in (rows, 1)
        if not whole or (shape[0] != 1 and not rows_equal(step.array(out[0]))):
            continue
        given = [n for n in op.inputs if n not in anatomy.weights and step.values[n].shape[:1] == (rows,)]
        if any(not rows_equal(step.array(n)) for n in given):
            if shape[0] == 1 and not _alone(step, anatomy, out[0], value):
                continue
            return op
    return None


def _alone(step: Step, anatomy: Anatomy, value: int, output: int) -> bool:
    """Nothing but this one row leads on to the output: whatever mixes it with rows that differ would keep them apart."""
    waiting, seen = [value], {value}
    while waiting:
        for op in anatomy.users.get(waiting.pop(), []):
            for number in op.outputs:
                if number not in seen:
                    seen.add(number)
                    waiting.append(number)
    followers = [op for op in anatomy.users.get(value, []) if any(number in seen for number in op.outputs)]
    return bool(followers) and all(
        rows_equal(step.array(n)) or step.values[n].shape[:1] in ((), (1,))
        for op in followers
        for n in op.outputs
        if step.values[n].shape
    )


SAMENESS = Experiment("sameness", "Does every sample get outputs of its own?", ask, first=10)
