"""Where a target is partly made by a model itself: does it take over a share between 0 and 1, and no gradient?

Value learning compares a prediction with a reward plus a share of what a model says about the next state. That model's output is
raised by a little everywhere, and the target is computed again. Healthy: it rises by 0 to 1 times as much. A share below 0 turns
the sign of every later reward, one above 1 lets values grow without end.

What is made of the prediction itself is no such target: an action that noise is added to is compared with the output that it was drawn by where its log-probability is taken.

And where that model is a copy of the one that is trained: do its weights ever change? They are compared from step to step, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import prod

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Op, Step

COMPARISONS = frozenset(("smooth_l1_loss", "mse_loss", "huber_loss", "sub", "rsub", "l1_loss"))
_RAISE = 0.25
_EXACT = 1e-3
_NEAR = 0.3
"""Of the size of the trained weights: how far a copy of them may be. What was drawn apart is 1.4 away."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    asked = False
    inside = anatomy.ancestors(list(anatomy.outputs))
    for op in step.ops:
        if op.name not in COMPARISONS or inside.intersection(op.outputs):  # what a model does inside is no comparison
            continue
        pair = _compared(step, anatomy, op)
        if pair is None:
            continue
        prediction, target = pair
        if prediction in anatomy.ancestors([target]):  # what is drawn around an output, and then compared with it
            continue
        layers = _layers_behind(step, anatomy, target)
        if not layers or not _has_data(step, anatomy, target):
            continue
        shares = _shares(step, target, layers)
        if shares is None:
            continue
        asked = True
        least, most = float(shares.min()), float(shares.max())
        made = anatomy.makers(target)
        source = made[-1].source if made else op.source
        numbers = {"least": least, "most": most}
        if least < -_EXACT:
            yield Answer(False, f"a share of {least:.3g}", numbers, source=source, op=op.name, part="negative")
        elif most > 1 + _EXACT:
            yield Answer(False, f"a share of {most:.3g}", numbers, source=source, op=op.name, part="above one")
        elif target in anatomy.trained and prediction in anatomy.trained:
            yield Answer(False, "the target carries a gradient", numbers, source=source, op=op.name, part="gradient")
        else:
            yield Answer(True, f"a share from {least:.3g} to {most:.3g}", numbers)
            if (since := _unchanged(step, anatomy, prediction, target, memory)) is not None:
                yield Answer(
                    False, f"the same since step {since}", {"since": since}, source=source, op=op.name, part="never renewed"
                )  # fmt: skip
    if not asked:
        raise NotPossible("no target is made from data and a model's output")


def _compared(step: Step, anatomy: Anatomy, op: Op) -> tuple[int, int] | None:
    """Prediction and target, both with as many values, both computed by models."""
    if len(op.inputs) != 2 or not any(n in anatomy.before_loss for n in op.outputs):
        return None
    a, b = op.inputs
    if a not in anatomy.computed or b not in anatomy.computed or step.values[a].shape != step.values[b].shape:
        return None
    if prod(step.values[a].shape) < 4:
        return None
    first = _has_data(step, anatomy, a), _has_data(step, anatomy, b)
    if first == (False, True):
        return a, b
    return (b, a) if first == (True, False) else None


def _has_data(step: Step, anatomy: Anatomy, value: int) -> bool:
    """Numbers that no model was shown have a part in it, one for each of its values."""
    rows = prod(step.values[value].shape)
    waiting, seen = [value], set()
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        known = step.values[number]
        data = known.origin in ("given", "made") and number not in anatomy.computed
        if data and known.kind == "float" and not known.into_model and prod(known.shape) == rows:
            return True
        for op in anatomy.makers(number):
            if not anatomy.is_layer(op):
                waiting += op.inputs
    return False


def _layers_behind(step: Step, anatomy: Anatomy, value: int) -> list[int]:
    found, waiting, seen = [], [value], set()
    while waiting:
        number = waiting.pop()
        if number in seen or number in anatomy.weights:
            continue
        seen.add(number)
        for op in anatomy.makers(number):
            if anatomy.is_layer(op):
                found.append(number)
            else:
                waiting += op.inputs
    return found


def _unchanged(step: Step, anatomy: Anatomy, prediction: int, target: int, memory: Memory) -> int | None:
    """The step since which the copy that the target is made with is the same, if the program has no line that renews it."""
    parameters = {v.number for v in step.values if v.origin == "parameter" and v.kind == "float"}
    mine = anatomy.ancestors([prediction]) & parameters
    others = (anatomy.ancestors([target]) & parameters) - mine
    if not others or step.renews_copies():
        return None
    now = [step.array(number) for number in sorted(others)]
    if "copy" not in memory:
        trained = [step.array(number) for number in sorted(mine)]
        memory["copy"] = step.number, _checksum(now), _alike(now, trained)
        return None
    since, before, alike = memory["copy"]
    return since if alike and before == _checksum(now) else None


def _checksum(arrays: list[Array]) -> bytes:
    found = blake2b()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.digest()


def _alike(copies: list[Array], trained: list[Array]) -> bool:
    """The first is the second, a few steps apart."""
    if [a.shape for a in copies] != [b.shape for b in trained]:
        return False
    apart = sum(float(((a - b) ** 2).sum()) for a, b in zip(copies, trained, strict=True))
    return apart < _NEAR**2 * sum(float((b**2).sum()) for b in trained)


def _shares(step: Step, target: int, layers: list[int]) -> Array | None:
    """By how much of a rise of the model's output each target rises; None where it is not in proportion."""
    rises = []
    before = step.array(target).astype(np.float64)
    for size in (_RAISE, 2 * _RAISE):
        raised = {number: (step.array(number) + size).astype(step.array(number).dtype) for number in layers}
        rises.append((step.array_with(target, raised).astype(np.float64) - before) / size)
    if not np.allclose(rises[0], rises[1], atol=_EXACT, rtol=_EXACT) or np.abs(rises[0]).max() < _EXACT:
        return None
    return rises[0]


BOOTSTRAP = Experiment("bootstrap", "Is the model's share in its own target between 0 and 1?", ask, alone=False)
