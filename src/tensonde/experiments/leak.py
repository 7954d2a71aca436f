"""Is what is to be predicted among the inputs?

The target of a comparison is looked for in the inputs of the same samples: columns that are equal to it in every row. Where all of it is
found, in an input at least twice as large, the first, middle and last of these columns are exchanged between samples, and the
step is computed again. Healthy: the output that is compared with a column does not change with it, as in a model that sees only what comes
before. Where it changes, the model is handed its target, and has nothing to learn but to pass it on.

An autoencoder, whose target is most of its input, is not meant, nor are tokens: tasks of memory ask for one that was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Op, Step, Value
from tensonde.model.site import SourceLine

FEWEST = 8
LABELS = 16
"""Rows in which classes have to be equal to a column: they have few values."""
PART = 0.5
"""Of an input: what a target that is handed over by mistake is at most."""
COMPARISONS = frozenset((
    "mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "sub", "rsub", "binary_cross_entropy", "binary_cross_entropy_with_logits",
))  # fmt: skip
CLASSES = frozenset(("nll_loss_forward",))
_SHAPING = frozenset(
    ("view", "reshape", "squeeze", "unsqueeze", "_to_copy", "clone", "alias", "_unsafe_view", "detach")
)


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    inputs = [v for v in anatomy.inputs if v.kind == "float" and len(v.shape) >= 2 and v.shape[0] >= FEWEST]
    asked = False
    for op, output, target in compared(step, anatomy):
        asked = True
        for value in inputs:
            columns = _columns(step, value, target)
            if columns is not None and _passed_on(step, value, output, columns):
                yield Answer(
                    False,
                    f"the target is a part of {value.name or 'an input'}",
                    {"columns": len(columns)},
                    names=(value.name, step.values[target].name),
                    source=target_line(step, anatomy, target, value) or op.source,
                    op=op.name,
                    part="target among the inputs",
                )
                return
    if not asked or not inputs:
        raise NotPossible("no target consists of numbers that could be among the inputs")
    yield Answer(True, "no target is among the inputs")


def compared(step: Step, anatomy: Anatomy) -> Iterator[tuple[Op, int, int]]:
    """Comparisons on the way to the loss: what the model gives, and what it is compared with."""
    for op in step.ops:
        if (
            op.name not in COMPARISONS | CLASSES
            or len(op.inputs) < 2
            or not anatomy.before_loss.intersection(op.outputs)
        ):
            continue
        a, b = op.inputs[:2]
        for output, target in ((a, b), (b, a)):
            known = step.values[target]
            if (
                output not in anatomy.trained
                or target in anatomy.computed
                or not known.shape
                or known.shape[0] < FEWEST
            ):
                continue
            shape = step.values[output].shape
            if (
                op.name in CLASSES
                or known.shape == shape
                or (known.shape[-1] == 1 < shape[-1] and known.shape[:-1] == shape[:-1])
            ):
                yield op, output, target


def _columns(step: Step, value: Value, target: int) -> list[int] | None:
    """Of the input, those that are the columns of the target, one after the other."""
    table, wanted = _table(step.array(value.number)), _table(step.array(target))
    rows, width = len(wanted), wanted.shape[-1]
    fewest = FEWEST if step.values[target].kind == "float" and len(np.unique(wanted)) > FEWEST else LABELS
    if len(table) != rows or rows < fewest or width > PART * table.shape[-1]:
        return None
    found = []
    for column in wanted.T:
        equal = np.flatnonzero((table == column[:, None]).all(axis=0))
        if not len(equal) or (column == column[0]).all():
            return None
        found.append(int(equal[0]))
    return found


def _passed_on(step: Step, value: Value, output: int, columns: list[int]) -> bool:
    """A column that is exchanged between samples changes the output that is compared with it."""
    before = step.array(output)
    for k in {0, len(columns) // 2, len(columns) - 1}:
        array = step.array(value.number).copy()
        table = array.reshape(len(array), -1)
        table[:, columns[k]] = np.roll(table[:, columns[k]], 1)
        after = step.array_with(output, {value.number: table.reshape(array.shape)})
        if before.shape != after.shape or before.shape[0] != len(array):
            return False
        changed = _table(before) != _table(after)
        if changed.shape[-1] > len(columns) and not changed.shape[-1] % len(
            columns
        ):  # several numbers are compared with each
            changed = changed.reshape(len(changed), len(columns), -1).any(-1)
        own = changed[:, k] if changed.shape[-1] == len(columns) else changed.any(axis=1)
        if not own.any():
            return False
    return True


def _table(array: Array) -> Array:
    return np.asarray(array.reshape(len(array), -1))


def target_line(step: Step, anatomy: Anatomy, target: int, value: Value | None = None) -> SourceLine | None:
    """The line that made the target: an op of the step, or what the program tells of what it was given; else that of the input."""
    number = target
    while made := anatomy.makers(number):
        if made[-1].name not in _SHAPING:
            return made[-1].source
        number = made[-1].inputs[0]
    known = step.values[number]
    return known.made or (value.made if value is not None else None) or known.bound


LEAK = Experiment("leak", "Is no target among the inputs?", ask, times=2)
