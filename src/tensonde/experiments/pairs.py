"""Do inputs and targets belong together, row by row?

Rows of inputs and of what the loss compares with are gathered from the steps that are asked. A plain learner (`relation.learnt`), which knows nothing of the program's
model, learns half of them and is asked about the other half; and again with the targets one or two rows earlier or later within each batch, and in reverse order.
Healthy: the targets fit as they are, or no order fits, since not everything can be learnt by a plain learner. Where they do not fit as they are, and fit well in another
order, they were shifted or turned on their way.

What was gathered also tells what is the matter where a model that has learnt its training data is at chance elsewhere (`held_out`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.relation import FEWEST, MOST_ROWS, classes, features, learnt
from tensonde.experiments.step import Array, NotPossible, Step, Value
from tensonde.model.site import SourceLine

NOT, WELL = 3.0, 7.0
"""Deviations: what is no relation, and what certainly is one."""
SHIFTS = (1, -1, 2, -2)


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    value, target = _pair(step, anatomy)
    x, y = features(_numbers(step.array(value.number))), described(step.array(target.number))
    if x is None or y is None or len(x) != len(y):
        raise NotPossible("inputs or targets are not rows of numbers")
    groups = memory.setdefault("groups", {})
    group = groups.setdefault((x.shape[1], y.ndim, y.shape[1:], target.name), {"rows": []})
    gathered = group["rows"]
    if sum(len(rows) for rows, _ in gathered) < MOST_ROWS:
        gathered.append((x, y))
    group["line"] = target.made or target.bound or group.get("line")
    xs, ys = _together(gathered)
    if len(xs) < 2 * FEWEST:
        raise NotPossible("too few rows were seen so far")
    fits = learnt(xs, ys)
    if fits is None:
        raise NotPossible("all inputs or all targets are the same")
    numbers = {"rows": float(len(xs)), "as they are": fits}
    if fits < NOT and step.seconds_left() > 0:
        for name, order in _orders(gathered):
            other = learnt(xs[order[0]], ys[order[1]])
            numbers[name] = other if other is not None else 0.0
    best = max((name for name in numbers if name not in ("rows", "as they are")), key=numbers.__getitem__, default="")
    if best and fits < NOT and numbers[best] > WELL:
        yield Answer(
            False, best, numbers, names=(target.name,), source=target.made or target.bound or step.loss_source, part="another order"
        )  # fmt: skip
        return
    yield Answer(
        True if fits > WELL else None,
        f"a plain learner finds targets by inputs, {fits:.0f} deviations from chance"
        if fits > WELL
        else "a plain learner cannot tell",
        numbers,
        names=(target.name,),
        source=target.made or target.bound,
    )


def _pair(step: Step, anatomy: Anatomy) -> tuple[Value, Value]:
    """What the model is handed, and what its output is compared with, with as many rows."""
    inputs = sorted((v for v in anatomy.inputs if v.kind == "float"), key=lambda v: -int(np.prod(v.shape)))
    inputs = inputs or [v for v in anatomy.inputs if v.kind == "int" and len(v.shape) >= 2]
    for value in inputs:
        behind = anatomy.ancestors([value.number])
        for op in step.ops:
            if anatomy.is_layer(op) or not any(n in anatomy.before_loss for n in op.outputs):
                continue
            if not any(n in anatomy.trained and n not in anatomy.weights for n in op.inputs):
                continue
            for number in op.inputs:
                target = step.values[number]
                if (
                    number not in anatomy.computed
                    and number not in behind
                    and target.kind in ("int", "float", "bool")
                    and target.shape[:1] == value.shape[:1]
                    and not target.into_model
                ):
                    source = next((step.values[n] for n in anatomy.ancestors([number]) if step.values[n].name), target)
                    return value, target if target.name else _named(target, source)
    raise NotPossible("no input and target with as many rows are seen")


def _named(target: Value, source: Value) -> Value:
    return replace(target, name=source.name, made=source.made, bound=source.bound)


def _numbers(array: Array) -> Array:
    """Tokens as how often each occurs."""
    if array.dtype.kind not in "iu" or array.ndim < 2:
        return array
    flat = array.reshape(len(array), -1)
    kept = np.unique(flat)[:256]
    return np.stack([(flat == token).mean(1) for token in kept], 1) if flat.min() >= 0 else flat


def described(target: Array) -> Array | None:
    """Targets as rows of numbers; classes stay whole numbers, so that batches can be put together."""
    if target.dtype.kind in "iu" and target.ndim == 1:
        return target
    return features(target)


def rows_of(memory: Memory) -> tuple[Array, Array, SourceLine | None]:
    """Most of what was gathered: inputs, targets, and the line that made the targets."""
    groups = memory.get("groups", {}).values()
    most: dict[str, Any] = max(groups, key=lambda group: sum(len(x) for x, _ in group["rows"]), default={"rows": []})
    return *_together(most["rows"]), most.get("line")


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
    yield "the targets of a batch fit its inputs in reverse order", (
        np.concatenate(parts), np.concatenate([part[::-1] for part in parts])
    )  # fmt: skip


PAIRS = Experiment("pairs", "Do inputs and targets belong together, row by row?", ask, times=12)
