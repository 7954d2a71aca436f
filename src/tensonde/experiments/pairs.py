"""Do inputs and targets belong together, row by row?

Rows of inputs and of what the loss compares with are gathered from the steps that are asked. A plain learner (`relation.learnt`), which knows nothing of the program's
model, learns half of them and is asked about the other half; and again with the targets one or two rows earlier or later within each batch, column by column instead of row by row, and in reverse order.
Healthy: the targets fit as they are, or no order fits, since not everything can be learnt by a plain learner. Where they do not fit as they are, and fit well in another
order, they were shifted or turned on their way. Not claimed where the model carries something from one row to the next: rows are positions then, and a target may be about an earlier one.

What was gathered also tells what is the matter where a model that has learnt its training data is at chance elsewhere (`held_out`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.relation import FEWEST, MOST_ROWS, classes, features, learnt
from tensonde.experiments.step import Array, NotPossible, Step, Value
from tensonde.model.site import SourceLine

NOT, WELL = 3.0, 7.0
"""Deviations: what is no relation, and what certainly is one."""
LOOKED = 2
"""Steps in which the tables are looked for that rows are taken from."""
MOST_FIELDS, MOST_INPUTS = 2, 4
MORE = 1.5
"""Times as many rows as when it was last asked."""
TAKING = frozenset(("index", "index_select", "slice", "gather"))
KINDS = 128
"""Of tokens; those beyond are counted with others."""
SHIFTS = (1, -1, 2, -2)
LARGEST, MOST_WIDTHS = 256, 6
"""Of a batch whose rows may have been laid out in another way, and ways that are tried."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    value, targets = _fields(step, anatomy)
    x = features(_numbers(step.array(value.number)))
    found = [a for target in targets if x is not None and (a := _asked(step, memory, value, x, target)) is not None]
    if not found:
        raise NotPossible("too few rows were seen so far, or they are not rows of numbers")
    # Where one of several fields fits as it is, the rows belong together.
    yield max(found, key=lambda answer: (answer.healthy is True, answer.healthy is False))


def _asked(step: Step, memory: Memory, value: Value, x: Array, target: Value) -> Answer | None:
    y = described(step.array(target.number))
    if y is None or len(x) != len(y) or _row_numbers(y):
        return None
    groups = memory.setdefault("groups", {})
    group = groups.setdefault((x.shape[1], y.ndim, y.shape[1:], target.name), {"rows": []})
    gathered = group["rows"]
    if not group.get("whole"):
        tables = step.tables(value.number, target.number) if len(gathered) < LOOKED else None
        table = None if tables is None else (features(_numbers(tables[0])), described(tables[1]))
        if table is not None and table[0] is not None and table[1] is not None and table[0].shape[1] == x.shape[1]:
            group["whole"], gathered[:] = True, [table]
        elif sum(len(rows) for rows, _ in gathered) < MOST_ROWS:
            gathered.append((x, y))
    group["line"] = line = group.get("parting") or _line(step, target) or group.get("line")
    xs, ys = _together(gathered)
    if len(xs) < MORE * group.get("asked", 0):
        known: Answer | None = group.get("answer")
        return known
    group["asked"] = len(xs)
    fits = learnt(xs, ys) if len(xs) >= 2 * FEWEST else None
    if fits is None:
        return None
    group["fits"] = fits
    if fits < NOT:  # it may not belong there: then it matters where the two part
        whole = y.ndim == 1 or y.shape[1] == 1
        group["parting"] = step.parting([value.number], [target.number], whole=whole)
        group["line"] = line = group["parting"] or line
    numbers = {"rows": float(len(xs)), "as they are": fits}
    if fits < NOT and step.seconds_left() > 0:
        for name, order in _orders(gathered):
            numbers[name] = learnt(xs[order[0]], ys[order[1]]) or 0.0
    best = max((name for name in numbers if name not in ("rows", "as they are")), key=numbers.__getitem__, default="")
    if best and numbers[best] > WELL and _are_positions(step, value):
        answer = Answer(None, "rows are positions of a sequence", numbers, names=(target.name,), source=line)
    elif best and numbers[best] > WELL:
        answer = Answer(
            False, best, numbers, names=(target.name,), source=line or step.loss_source, part="another order"
        )
    elif fits > WELL:
        told = f"a simple model predicts targets from inputs {fits:.0f} standard deviations above chance"
        answer = Answer(True, told, numbers, names=(target.name,), source=line)
    else:
        answer = Answer(None, "a simple model cannot tell", numbers, names=(target.name,), source=line)
    group["answer"] = answer
    return answer


def _row_numbers(y: Array) -> bool:
    """Each row is to be told from the others of its batch: no property of a sample."""
    return y.ndim == 1 and bool((y == np.arange(len(y))).all())


def _are_positions(step: Step, value: Value) -> bool:
    """One row that is changed changes what the model says of others: it remembers what came before, and targets may be about that."""
    array = step.array(value.number)
    one = len(array) // 3
    other = next((k for k in range(len(array)) if (array[k] != array[one]).any()), None)
    if other is None:
        return False
    changed = array.copy()
    changed[one] = array[other]
    (effects,) = step.effects([{value.number: changed}], still_norms=True)
    for number in Anatomy.of(step).outputs:
        effect = effects.get(number)
        if effect is None or not effect.changed or not effect.along or len(effect.along[0]) % len(array):
            continue
        rows = effect.along[0].reshape(len(array), -1).any(axis=1)
        if np.delete(rows, one).any():
            return True
    return False


def _fields(step: Step, anatomy: Anatomy) -> tuple[Value, list[Value]]:
    """What the model is handed, and the fields with as many rows that its output is compared with, as they came: what a loss makes of them may stand in another order."""
    inputs = sorted((v for v in anatomy.inputs if v.kind == "float"), key=lambda v: -int(np.prod(v.shape)))
    inputs = inputs or [v for v in anatomy.inputs if v.kind == "int" and len(v.shape) >= 2]
    handed = {v.number for v in anatomy.inputs}
    indices = {n for op in step.ops if op.name in TAKING for n in op.inputs[1:]}
    for value in inputs:
        behind = anatomy.ancestors([value.number])
        made_of = anatomy.ancestors(anatomy.compared) - behind
        fields = [
            v
            for v in step.values
            if v.number in made_of
            and v.kind in ("int", "float", "bool")
            and v.shape[:1] == value.shape[:1]
            and not v.into_model
            and v.number not in indices
            and (
                v.origin == "given"
                or v.name
                or (v.op is not None and step.ops[v.op].name in TAKING and _taken(step, v))
            )
            and (v.origin == "given" or not anatomy.ancestors([v.number]) & handed)
        ]
        if fields:
            return value, fields[:MOST_FIELDS]
    raise NotPossible("no input and target have the same number of rows")


def parted(step: Step, anatomy: Anatomy) -> SourceLine | None:
    """Where the ways of inputs and targets part in the program's text, or those of one input and the others."""
    try:
        value, targets = _fields(step, anatomy)
    except NotPossible:
        return _inputs_part(step, anatomy)
    whole = all(np.prod(target.shape[1:]) <= 1 for target in targets)
    others = [*(t.number for t in targets), *sorted(anatomy.ancestors([t.number for t in targets]), reverse=True)]
    beside = [v for v in anatomy.inputs if v is not value and v.name and v.shape[:1] == value.shape[:1]]
    ways = [[v.number, *sorted(anatomy.ancestors([v.number]), reverse=True)] for v in (value, *beside[:MOST_INPUTS])]
    # What moves whole samples comes first: targets of several numbers may be positions, or not.
    for of_all, sure in dict.fromkeys(((True, True), (True, False), (whole, True), (whole, False))):
        found = (step.parting(ones, others, whole=of_all, sure=sure) for ones in ways)
        line = next((line for line in found if line is not None), None) or _inputs_part(step, anatomy, sure)
        if line is not None:
            return line
    return None


def _inputs_part(step: Step, anatomy: Anatomy, sure: bool = False) -> SourceLine | None:
    """Each input is held against the one before it."""
    inputs = [v for v in anatomy.inputs if v.name and v.kind in ("float", "int")]
    found = (step.parting([a.number], [b.number], whole=True, sure=sure) for a, b in pairwise(inputs[:MOST_INPUTS]))
    return next((line for line in found if line is not None), None)


def _line(step: Step, target: Value) -> SourceLine | None:
    """That made the target, or the table that its rows are taken from."""
    table = step.values[step.ops[target.op].inputs[0]] if target.op is not None else target
    return table.made or table.bound or target.made or target.bound


def _taken(step: Step, value: Value) -> bool:
    """Rows of a larger table."""
    table = step.values[step.ops[value.op or 0].inputs[0]]
    return table.origin == "given" and table.shape[:1] > value.shape[:1]


def _numbers(array: Array) -> Array:
    """Tokens as how often each occurs."""
    if array.dtype.kind not in "iu" or array.ndim < 2:
        return array
    flat = array.reshape(len(array), -1) % KINDS
    return np.stack([(flat == kind).mean(1) for kind in range(KINDS)], 1)


def described(target: Array) -> Array | None:
    """Targets as rows of numbers; classes stay whole numbers, so that batches can be put together."""
    if target.dtype.kind in "iu" and target.ndim == 1:
        return target
    return features(target)


@dataclass(frozen=True, slots=True)
class Rows:
    """What was gathered of inputs and one of the targets."""

    x: Array
    y: Array
    line: SourceLine | None
    """That made the targets."""
    fits: float
    """As they are, in deviations."""


def rows_of(memory: Memory) -> list[Rows]:
    """Of each target, the one that fits best first."""
    groups = [group for group in memory.get("groups", {}).values() if "fits" in group]
    found = [Rows(*_together(group["rows"]), group.get("line"), group["fits"]) for group in groups]
    return sorted(found, key=lambda rows: -rows.fits)


def _together(gathered: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    if not gathered:
        return np.zeros((0, 1)), np.zeros((0, 1))
    x, y = (np.concatenate([pair[k] for pair in gathered])[:MOST_ROWS] for k in (0, 1))
    return x, columns(y)


def columns(y: Array, most: int | None = None) -> Array:
    hot = classes(y, most) if y.ndim == 1 else None
    return hot if hot is not None else y.astype(np.float64).reshape(len(y), -1)


def _orders(gathered: list[tuple[Array, Array]]) -> Iterable[tuple[str, tuple[Array, Array]]]:
    """Which row of the inputs goes with which of the targets."""
    places = np.cumsum([0, *(len(x) for x, _ in gathered)])
    parts = [np.arange(a, min(b, MOST_ROWS)) for a, b in pairwise(places)]
    for shift in SHIFTS:
        name = f"the target of a row fits the input {abs(shift)} row{'s' * (abs(shift) > 1)} {'before' if shift > 0 else 'after'} it"
        ours = [part[:-shift] if shift > 0 else part[-shift:] for part in parts]
        theirs = [part[shift:] if shift > 0 else part[:shift] for part in parts]
        yield name, (np.concatenate(ours), np.concatenate(theirs))
    size = len(parts[0]) if parts else 0
    for width in [w for w in range(2, size // 2 + 1) if not size % w][:MOST_WIDTHS] if size <= LARGEST else ():
        whole = [part for part in parts if len(part) == size]
        across = [part.reshape(-1, width).T.reshape(-1) for part in whole]
        yield f"the targets of a batch fit its inputs when laid out in {width} columns and read column by column", (
            np.concatenate(whole), np.concatenate(across)
        )  # fmt: skip
    yield "the targets of a batch fit its inputs in reverse order", (
        np.concatenate(parts), np.concatenate([part[::-1] for part in parts])
    )  # fmt: skip


PAIRS = Experiment("pairs", "Do inputs and targets belong together, row by row?", ask, times=12)
