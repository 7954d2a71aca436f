"""Is an output compared with a target of the same sample?

One sample of the data is exchanged for another, and the step is computed again. Where the loss compares what a model gives with what was
made of the same data without gradients (a teacher, a copy, the inputs themselves), both change in the row of that sample. Healthy: at one comparison at least, they
do. Where they change in different rows wherever they meet, every output is compared with what belongs to another sample: one of the two was turned, shifted or
shuffled on its way.

A sample may have several rows, one for each of its positions: then all of them are looked at. Not claimed where one comparison is in order, since others may be negatives
that are taken from other samples on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, Effect, NotPossible, Op, Step
from tensonde.model.site import SourceLine

FEWEST = 4
_TAKING = frozenset(("index", "index_select"))


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    rows = step.batch or _rows(step, anatomy)
    fields = _fields(step, anatomy, rows)
    if rows < FEWEST or not fields:
        raise NotPossible("it is not known which dimension holds the samples")
    found: list[Answer] = []
    for one in (rows // 3, rows - 2):  # the second only where the first is amiss
        if not any(answer.healthy for answer in found):
            found.append(_asked(step, anatomy, fields, rows, one))
    moved = {answer.numbers["other"] - answer.numbers["row"] for answer in found if not answer.healthy}
    if not step.batch and moved and moved <= {1.0, -1.0} and len(moved) == 1:
        raise NotPossible("rows may be positions of a sequence, each compared with the next")
    yield next((answer for answer in found if answer.healthy), found[0])


def _asked(step: Step, anatomy: Anatomy, fields: list[int], rows: int, one: int) -> Answer:
    """With this sample exchanged."""
    changes = {}
    for number in fields:
        array = step.array(number)
        other = next((k for k in range(rows) if k != one and (array[k] != array[one]).any()), None)
        if other is not None:
            changes[number] = array.copy()
            changes[number][one] = array[other]
    if not changes:
        raise NotPossible("all samples are equal")
    (effects,) = step.effects([changes], still_norms=True)
    told: list[tuple[Op, Array, Array]] = []
    for op in step.ops:
        for hot, cold in _meetings(anatomy, op):
            ours, theirs = _places(effects.get(hot), rows), _places(effects.get(cold), rows)
            if ours is not None and theirs is not None and len(ours) == len(theirs):
                told.append((op, np.flatnonzero(ours), np.flatnonzero(theirs)))
    if not told:
        raise NotPossible("nothing made from the samples is compared with outputs")
    if any(_meet(ours, theirs) for _, ours, theirs in told):
        return Answer(True, "both change with the same sample")
    op, ours, theirs = told[0]
    several = len(ours) > 1 or len(theirs) > 1
    return Answer(
        False,
        f"rows {_some(ours)} of the outputs are compared with the result of the sample of rows {_some(theirs)}"
        if several
        else f"row {ours[0]} of the outputs is compared with the result of the sample of row {theirs[0]}",
        {"rows": float(rows), "row": float(ours[0]), "other": float(theirs[0])},
        source=_turned(step, effects, one, rows) or step.loss_source or op.source,
        op=op.name,
        part="another sample",
    )


def _meet(ours: Array, theirs: Array) -> bool:
    """Half of the rows of one are rows of the other: not every position of a sample has to change with it."""
    return 2 * len(np.intersect1d(ours, theirs)) >= min(len(ours), len(theirs))


def _some(rows: Array) -> str:
    return ", ".join(str(row) for row in rows[:3]) + (", …" if len(rows) > 3 else "")


def _rows(step: Step, anatomy: Anatomy) -> int:
    """The first dimension that all inputs of models and all their outputs have in common."""
    sizes = {v.shape[0] for v in anatomy.inputs} | {
        step.values[n].shape[0] for n in anatomy.outputs if step.values[n].shape
    }
    return sizes.pop() if len(sizes) == 1 else 0


def _fields(step: Step, anatomy: Anatomy, rows: int) -> list[int]:
    """Data with a row for each sample, and nothing that was made of other such data. Rows that a table was asked for are data, the places where they stand in it are not."""
    places = {n for op in step.ops if op.name in _TAKING for n in op.inputs[1:]}
    handed = {v.number for v in anatomy.inputs}
    known = [
        v.number
        for v in step.values
        if v.shape[:1] == (rows,)
        and v.kind in ("float", "int")
        and v.number not in anatomy.computed
        and v.number not in places
        and (v.number in handed or v.origin == "given" or (v.op is not None and step.ops[v.op].name in _TAKING))
    ]
    return [n for n in known if not (anatomy.ancestors([n]) - {n}) & set(known)]


def _meetings(anatomy: Anatomy, op: Op) -> Iterable[tuple[int, int]]:
    """What gradients pass, and what they do not, on the way to the loss; layers are no comparisons."""
    if not any(n in anatomy.before_loss for n in op.outputs) or anatomy.is_layer(op):
        return
    hot = [n for n in op.inputs if n in anatomy.trained and n not in anatomy.weights]
    cold = [n for n in op.inputs if n not in anatomy.trained and n not in anatomy.weights]
    yield from ((h, c) for h in hot for c in cold)


def _places(effect: Effect | None, rows: int) -> Array | None:
    """Which rows changed, where they are as many as one sample has."""
    if effect is None or not effect.changed or not effect.along or len(effect.along[0]) % rows:
        return None
    along = effect.along[0]
    return along if 0 < along.sum() <= len(along) // rows else None


def _row(effect: Effect | None, rows: int) -> int | None:
    """The one row that changed."""
    along = _places(effect, rows)
    return int(np.flatnonzero(along)[0]) if along is not None and len(along) == rows else None


def _turned(step: Step, effects: dict[int, Effect], one: int, rows: int) -> SourceLine | None:
    """The op that takes a change of the sample's own row and gives one of another."""
    for op in step.ops:
        given = {_row(effects.get(n), rows) for n in op.inputs}
        made = {_row(effects.get(n), rows) for n in op.outputs}
        if given & {one} and made and not made & {one, None}:
            return op.source
    return None


COMPANIONS = Experiment(
    "companions", "Is an output compared with a target of the same sample?", ask, times=2, alone=False
)
