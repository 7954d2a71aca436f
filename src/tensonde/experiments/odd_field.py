"""Do all fields of a batch belong to the same samples?

Of fields that the loss is computed from beside outputs (rewards, ends, labels, weights), a plain learner (`relation.learnt`) is asked how well each can be told from all that models are handed of the same rows.
Where one can be told well and another not at all, that other may be unpredictable, or of other rows. So the program's text is read: only where it shuffles, sorts or shifts this field on its way, and not
the one that fits, it is taken for a mistake.

Unlike in `pairs`, targets that a model makes a part of (value learning) are no obstacle: fields are asked as they came.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.pairs import MOST_FIELDS, NOT, TAKING, WELL, columns, described
from tensonde.experiments.relation import MOST_FEATURES, MOST_ROWS, features, learnt
from tensonde.experiments.step import NotPossible, Step, Value

FEWEST = 16
"""Rows of a batch."""
ROWS = 96
MOST = 3 * MOST_FIELDS


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    inputs = [v for v in anatomy.inputs if v.kind == "float" and v.shape and v.shape[0] >= FEWEST]
    rows = {v.shape[0] for v in inputs}
    if len(rows) != 1:
        raise NotPossible("inputs do not have one number of rows")
    fields = _fields(step, anatomy, rows.pop())
    if len(fields) < 2:
        raise NotPossible("besides the model's inputs, fewer than two fields go into the loss")
    parts = [f for v in inputs if (f := features(step.array(v.number))) is not None]
    x = np.concatenate(parts, 1) if parts else None
    if x is None or x.shape[1] > MOST_FEATURES:
        raise NotPossible("the model's inputs are not rows of numbers")
    gathered = memory.setdefault("rows", {})
    fits: dict[str, tuple[float, Value]] = {}
    for value in fields:
        y = described(step.array(value.number))
        known = gathered.setdefault((value.name, x.shape[1], None if y is None else y.shape[1:]), [])
        if y is None or len(y) != len(x):
            continue
        if sum(len(a) for a, _ in known) < MOST_ROWS:
            known.append((x, y))
        xs = np.concatenate([a for a, _ in known])[:MOST_ROWS]
        ys = columns(np.concatenate([b for _, b in known])[:MOST_ROWS])
        z = learnt(xs, ys) if len(xs) >= ROWS else None
        if z is not None:
            fits[value.name] = z, value
    if len(fits) < 2:
        raise NotPossible("too few rows were seen so far")
    numbers = {name: z for name, (z, _) in fits.items()}
    best = max(fits, key=lambda name: fits[name][0])
    for name, (z, value) in fits.items():
        if z < NOT and fits[best][0] > WELL:
            line = step.parting([fits[best][1].number], [value.number], whole=True, sure=True)
            if line is not None:
                yield Answer(
                    False, f"{best} can be predicted from the inputs, {name} cannot", numbers, names=(name, best), source=line, part="odd",
                )  # fmt: skip
                return
    yield Answer(True if fits[best][0] > WELL else None, "no field is treated differently from one that fits", numbers)


def _fields(step: Step, anatomy: Anatomy, rows: int) -> list[Value]:
    behind = anatomy.before_loss
    indices = {n for op in step.ops if op.name in TAKING for n in op.inputs[1:]}
    found = [
        v
        for v in step.values
        if v.number in behind and v.number not in indices and v.name and not v.into_model and v.shape[:1] == (rows,)
        and (v.origin == "given" or (v.op is not None and step.ops[v.op].name in TAKING))
        and v.kind in ("int", "float", "bool")
    ]  # fmt: skip
    return found[:MOST]


ODD_FIELD = Experiment("odd-field", "Do all fields of a batch belong to the same samples?", ask, times=6, alone=False)
