"""Does everything that goes into the model matter to the loss?

Every tensor that is handed to a model, and every one that the loss is computed from, is given rows that are drawn from its own, and
the loss is computed again. Healthy: the loss changes. A loss that is the same to the last bit does not
depend on it: a time step, a mask, a side of the edges, a label without influence. Where the change dies out tells the line.

Of sequences that are filled up to one length, the entries that are no padding are also drawn anew by themselves: where only the padding
has an influence, a mask hides the wrong side.

What is handed to a model and also used beside it (a time step) is changed for the model alone.

Not asked of what Python code has read (a length that became a number), of what is the same for all samples, and of what has only
one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tensonde.experiments.anatomy import SHAPES, Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, Effect, Op, Step, Value

MOST = 12
"""Values that are tried."""
FEWEST = 4
NOT_PADDING = ", where it is no padding,"
COLUMNS = 16
"""Of a table whose columns are looked at one by one."""
_TAKING = frozenset(("select", "slice"))
LONGEST = 8
"""Ops that are looked at of what is done to a column."""
_SHAPING = frozenset(("view", "reshape", "squeeze", "unsqueeze", "_to_copy", "clone", "alias", "slice"))
_SIDES = 4
"""A tensor of so few rows and many columns is a few lists side by side, such as the two ends of edges."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    asked = 0
    yield from _taken_twice(step, anatomy)
    for value in anatomy.data:
        if not _is_candidate(value, anatomy) or asked >= MOST or step.seconds_left() <= 0:
            continue
        for part, changed in _changed(value, step.array(value.number)):
            asked += 1
            name = value.name + part
            apart = _used_beside(step, anatomy, value)
            try:
                effects = step.effects([{value.number: changed}], inside=apart)[0]
            except Exception:  # not every order of values is one that the ops take: then they depend on it
                continue
            if effects[step.loss].changed:
                yield Answer(True, f"{name or 'an input'} matters", names=(name,))
            else:
                last = _last(step, anatomy, value, effects, inside=apart)
                yield Answer(
                    False,
                    f"the loss is the same whatever {name or 'an input'} holds" + (" for the model" if apart else ""),
                    names=(name,),
                    source=last.source if last is not None else value.made or step.loss_source,
                    module=last.module if last is not None else "",
                    op=last.name if last is not None else "",
                    part="passed to the model" if value.into_model else "compared with",
                )
                break


def _taken_twice(step: Step, anatomy: Anatomy) -> Iterator[Answer]:
    """One column of a table is taken twice, for the same kind of use, and another one never, which has no influence: the same number was written twice."""
    outputs = [_followed(step, anatomy, number) for number in anatomy.outputs]
    for value in [*(v for v in anatomy.inputs if len(v.shape) == 2), *outputs]:
        if len(value.shape) < 2 or not 2 <= value.shape[-1] <= COLUMNS or value.shape[0] < FEWEST or value.read:
            continue
        array = step.array(value.number)
        array = array.reshape(-1, array.shape[-1])
        taken: dict[int, list[Op]] = {}
        for op in _users(step, anatomy, value):
            if op.name not in _TAKING or op.outputs[0] not in anatomy.before_loss:
                break
            part = step.array(op.outputs[0])
            column = _column(array, part)
            if column is None:
                break
            taken.setdefault(column, []).append(op)
        else:
            twice = [ops for ops in taken.values() if len(ops) > 1]
            never = [k for k in range(array.shape[1]) if k not in taken and (array[:, k] != array[0, k]).any()]
            if (
                len(twice) == 1
                and len(never) == 1
                and len(taken) + 1 == array.shape[1]
                and _alike(step, anatomy, twice[0])
            ):
                first = twice[0][0]
                name = value.name or ("the output" if value in outputs else "")
                yield Answer(
                    False,
                    f"column {never[0]} of {name} is used nowhere, and another one twice",
                    names=(f"{name}[..., {never[0]}]" if value in outputs else f"{name}[:, {never[0]}]",),
                    source=first.source,
                    module=first.module,
                    op=first.name,
                    part="taken twice",
                )


def _followed(step: Step, anatomy: Anatomy, output: int) -> Value:
    """An output of a layer, as it is when its columns are taken: what is done to all of it before leaves them where they are."""
    while (
        len(users := [op for op in anatomy.users.get(output, []) if op.outputs]) == 1 and users[0].name not in _TAKING
    ):
        (made,) = users[0].outputs[:1]
        if (
            step.values[made].shape[-1:] != step.values[output].shape[-1:]
            or made <= output
            or anatomy.is_layer(users[0])
        ):
            break
        output = made
    return step.values[output]


def _alike(step: Step, anatomy: Anatomy, takes: list[Op]) -> bool:
    """The same is done to both, up to where weights or others meet them. A sine and a cosine, a value and its square, a vector of a user and a bias of the same user are two uses of one
    column."""
    return len({frozenset(_uses(step, anatomy, number) for number in take.outputs) for take in takes}) == 1


def _uses(step: Step, anatomy: Anatomy, value: int) -> tuple[object, ...]:
    found: list[object] = []
    while len(users := [op for op in anatomy.users.get(value, []) if op.outputs]) == 1 and len(found) < LONGEST:
        (op,) = users
        if op.name not in _SHAPING:
            found.append(op.name)
        beside = [n for n in op.inputs if n != value and step.values[n].shape]
        value = op.outputs[0]
        if beside:
            found.append(step.values[value].shape[1:] in ((), (1,)))
            break
    return tuple(found)


def _users(step: Step, anatomy: Anatomy, value: Value) -> Iterator[Op]:
    """Of the value, and of slices that take all of it."""
    for op in anatomy.users.get(value.number, []):
        if op.name == "slice" and step.values[op.outputs[0]].shape == value.shape:
            yield from _users(step, anatomy, step.values[op.outputs[0]])
        else:
            yield op


def _column(table: Array, part: Array) -> int | None:
    """The only one that it is."""
    if part.size != len(table):
        return None
    equal = np.flatnonzero((table == part.reshape(-1, 1)).all(axis=0))
    return int(equal[0]) if len(equal) == 1 else None


def _used_beside(step: Step, anatomy: Anatomy, value: Value) -> bool:
    """It is handed to a model, and also used outside of models, as a time step is that noise is chosen by: then the model is asked by itself."""
    if not value.into_model or step.values[value.number].op is not None:
        return False
    users = [op for op in anatomy.users.get(value.number, []) if op.name not in SHAPES]
    return any(not op.module for op in users)


def _is_candidate(value: Value, anatomy: Anatomy) -> bool:
    if value.read or value.kind == "other" or max(value.shape) < FEWEST or not value.name:
        return False
    return value.into_model or value.number in anatomy.before_loss


def _changed(value: Value, array: Array) -> Iterator[tuple[str, Array]]:
    """The value with rows (or entries of one side) that are drawn anew from its own: not only in another order, which a mean
    over samples would not notice."""
    draw = np.random.Generator(np.random.PCG64(1))
    if value.kind == "int" and array.ndim == 2 and array.shape[0] <= _SIDES < array.shape[1] // 4:
        for side in range(array.shape[0]):
            changed = array.copy()
            changed[side] = draw.choice(array[side], array.shape[1])
            if (changed != array).any():
                yield f"[{side}]", changed
        return
    if len(array) < FEWEST:
        return
    changed = array[draw.integers(0, len(array), len(array))]
    if (changed != array).any():
        yield "", changed
    real = _not_padding(value, array)
    if real is not None:
        changed = array.copy()
        changed[real] = draw.permutation(array[real])
        if (changed != array).any():
            yield NOT_PADDING, changed


def _not_padding(value: Value, array: Array) -> Array | None:
    """Where a table of tokens holds some that were not put there to fill it up: all before the last ones of a row that are alike."""
    if value.kind != "int" or array.ndim != 2 or array.shape[1] < FEWEST:
        return None
    fill = np.bincount(array[:, -1] - array[:, -1].min()).argmax() + array[:, -1].min()
    tail = np.logical_and.accumulate((array == fill)[:, ::-1], axis=1)[:, ::-1]
    share = tail.mean()
    if not 0.05 < share < 0.95 or ((array == fill) & ~tail).any() or len(np.unique(array[~tail])) < FEWEST:
        return None
    return np.asarray(~tail)


def _last(step: Step, anatomy: Anatomy, value: Value, effects: dict[int, Effect], *, inside: bool) -> Op | None:
    """The last op that the change got to; where it got to none, the first of a model that looks at its shape."""
    found = None
    for op in step.ops:
        if inside and not op.module:
            continue
        if op.name in SHAPES:
            found = op if found is None and value.number in op.inputs else found
            continue
        touched = any(number == value.number or (number in effects and effects[number].changed) for number in op.inputs)
        if touched:
            found = op
    return found


INFLUENCE = Experiment("influence", "Does every input matter?", ask, times=2)
