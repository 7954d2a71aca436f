"""Do targets stand at the right positions?

Where a model is handed something for each position of a sequence and compared with a target for each position, a plain learner (`relation.learnt`) is asked how well the targets can be told from
what stands at their own position, and from what stands one, two or three positions before or after. Healthy: from their own best, or from none. Where their own position tells nothing and another one
tells them well, and the program's text moves one of the two along, they were shifted on their way.

Not asked where the targets are the model's inputs, at whatever position: to go on with a sequence, or to remember it, is a task.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.pairs import KINDS, NOT, WELL, columns
from tensonde.experiments.relation import MOST_ROWS, learnt
from tensonde.experiments.step import Array, NotPossible, Step, Value

LONGEST, FARTHEST = 8, 3
"""Positions of the shortest sequence that is asked; how far targets may be moved."""
ROWS = 256
"""Positions of which something is said."""
TIMES = 3.0
"""How many times better another position tells a target than its own."""
SAME = 0.9
"""Of the positions: targets that are what the model is handed."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    value, target = _pair(step, anatomy)
    x, y = _by_position(step.array(value.number), step.array(target.number))
    if any(_same(x, y, k) for k in range(-FARTHEST, FARTHEST + 1)):
        raise NotPossible("the targets are the model's inputs")
    gathered: list[tuple[Array, Array]] = memory.setdefault("gathered", [])
    if sum(prod(a.shape[:2]) for a, _ in gathered) < 4 * MOST_ROWS and all(
        a.shape[2:] == x.shape[2:] and b.shape[2:] == y.shape[2:] for a, b in gathered
    ):
        gathered.append((x, y))
    own = _told(gathered, 0, value.kind)
    if own is None:
        raise NotPossible("too few positions were seen so far, or all of them are the same")
    beside = [k for k in range(-FARTHEST, FARTHEST + 1) if k] if own < NOT else []
    numbers = {"0": own, **{str(k): z for k in beside if (z := _told(gathered, k, value.kind)) is not None}}
    best = max(numbers, key=numbers.__getitem__)
    line = None
    if best != "0" and own < NOT and numbers[best] > max(WELL, TIMES * own):
        line = step.moved(value.number, target.number)
    if line is not None:
        on = int(best)
        yield Answer(
            False,
            f"the target of a position is predicted by what is {abs(on)} position{'s' * (abs(on) > 1)} {'after' if on > 0 else 'before'} it, and not by what is there",
            numbers,
            names=(target.name or "the target", value.name),
            source=line,
            part="lag",
        )
    else:
        yield Answer(
            True if own > WELL else None,
            "targets are predicted by their own positions" if own > WELL else "a simple model cannot tell",
            numbers,
        )


def _pair(step: Step, anatomy: Anatomy) -> tuple[Value, Value]:
    """What the model is handed of each position, and what it is compared with there."""
    for value in anatomy.inputs:
        sequence = (value.kind == "int" and len(value.shape) == 2) or (value.kind == "float" and len(value.shape) == 3)
        if not sequence or max(value.shape[1:]) < LONGEST:
            continue
        behind = anatomy.ancestors([value.number])
        for number in sorted(anatomy.ancestors(anatomy.compared) - behind):
            target = step.values[number]
            if (
                target.into_model
                or target.kind not in ("int", "float")
                or not (target.origin == "given" or target.name)
            ):
                continue
            if _axis(value.shape, target.shape) is not None and value.number not in anatomy.ancestors([number]):
                return value, target
    raise NotPossible("no sequence is compared position by position")


def _axis(given: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, int] | None:
    """The dimensions of positions: the same size, and no other dimension could be meant."""
    if target[:1] != given[:1] or len(target) not in (2, 3):
        return None
    found = [(a, b) for a in range(1, len(given)) for b in range(1, len(target)) if given[a] == target[b] >= LONGEST]
    return found[0] if len(found) == 1 else None


def _by_position(given: Array, target: Array) -> tuple[Array, Array]:
    """Samples, positions, features."""
    a, b = _axis(given.shape, target.shape) or (1, 1)
    x = given[..., None] if given.ndim == 2 else np.moveaxis(given, a, 1)
    y = target[..., None] if target.ndim == 2 else np.moveaxis(target, b, 1)
    return x, y


def _same(x: Array, y: Array, on: int) -> bool:
    """The targets are a part of what the model is handed, so many positions on."""
    ours, theirs = _moved(x, y, on)
    return any(bool(((ours[..., k : k + 1] == theirs).all(-1)).mean() > SAME) for k in range(min(x.shape[2], 16)))


def _moved(x: Array, y: Array, on: int) -> tuple[Array, Array]:
    length = x.shape[1]
    ours = x[:, max(on, 0) : length + min(on, 0)]
    return ours, y[:, max(-on, 0) : length + min(-on, 0)]


def _told(gathered: list[tuple[Array, Array]], on: int, kind: str) -> float | None:
    """How well what stands so many positions on tells the targets, in deviations. What fills sequences up, and targets that do not count, are left out."""
    parts = [_moved(x, y, on) for x, y in gathered]
    ours = np.concatenate([a.reshape(-1, a.shape[2]) for a, _ in parts])
    theirs = np.concatenate([b.reshape(-1, b.shape[2]) for _, b in parts])
    later = np.concatenate([np.repeat(np.arange(len(a)) % 2 > 0, a.shape[1]) for a, _ in parts])
    """Positions of one sample are alike: every other sample is learnt, and the rest are asked about."""
    counts = np.ones(len(ours), dtype=bool)
    if kind == "int":
        kinds, number = np.unique(gathered[0][0][:, -1], return_counts=True)
        if number.max() > len(gathered[0][0]) // 3:
            counts &= ours[:, 0] != kinds[number.argmax()]
    if theirs.dtype.kind in "iu":
        counts &= (theirs >= 0).all(1)
    order = np.random.Generator(np.random.PCG64(7)).permutation(np.flatnonzero(counts))[:MOST_ROWS]
    if len(order) < ROWS:
        return None
    ours, theirs, later = ours[order], theirs[order], later[order]
    if kind == "int":
        ours = np.eye(KINDS)[ours[:, 0].astype(np.int64) % KINDS]
    if theirs.dtype.kind in "iu" and theirs.shape[1] == 1:
        theirs = columns(theirs[:, 0] % KINDS)
    if min(later.sum(), (~later).sum()) < ROWS // 4 or not np.isfinite(ours).all():
        return None
    return learnt(ours[~later], theirs[~later], ours[later], theirs[later])


LAGS = Experiment("lags", "Do targets stand at the right positions?", ask, times=3, alone=False)
