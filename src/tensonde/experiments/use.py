"""Is every input related to what is learnt?

One input of several is given to other samples, while all others and the targets stay, and the step is computed again. Healthy: the loss suffers, once the training has
learnt something. An input that can be changed about throughout belongs to other samples, or carries nothing. `influence` asks whether an input changes the loss at all; a
sentence of another sample does.

Not asked of what is one of several of a kind, which the same weights look at (negatives are taken from other samples on purpose; inputs that stand side by side have columns of their own), of random numbers, of masks, and where a model makes the
targets. Whether something was learnt, and whether the program's text takes this input from elsewhere, the rule looks at.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import SHAPES, Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.nothing_learnt import APART, SHUFFLES, deviations
from tensonde.experiments.sameness import rows_equal
from tensonde.experiments.step import NotPossible, Step, Value
from tensonde.model.site import SourceLine

FEWEST, MOST = 16, 4
"""Samples by which it shows; inputs that are asked."""
LITTLE, CHANCE = 0.01, 2.0
"""Of the loss: what an input of no use changes at most; deviations that are hardly more than chance."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    if anatomy.targets_by_model or anatomy.random_targets:
        raise NotPossible("a model makes the targets of the loss, or there are none")
    inputs = _inputs(step, anatomy)
    rows = inputs[0].shape[0] if inputs else 0
    if rows < FEWEST or len(inputs) < 2:
        raise NotPossible("the model does not get several things per sample")
    loss = float(step.array(step.loss))
    draw = np.random.Generator(np.random.PCG64(4))
    orders = [draw.permutation(rows) for _ in range(SHUFFLES)]
    for value in [v for v in inputs if v.name and _alone(step, anatomy, v, inputs)][:MOST]:
        if step.seconds_left() <= 0:
            return
        array = step.array(value.number)
        beside = any(not op.module for op in anatomy.users.get(value.number, []) if op.name not in SHAPES)
        losses = [step.loss_with({value.number: array[order]}, inside=beside) for order in orders]
        apart, other = deviations(loss, losses), float(np.mean(losses))
        useful = apart > APART or (apart > CHANCE and other - loss > LITTLE * abs(loss))
        yield Answer(
            useful,
            f"the loss is {loss:.3g}, and {other:.3g} with {value.name} of other samples",
            {"loss": loss, "with_others": other, "apart": apart},
            (value.name,),
            source=None if useful else _parting(step, anatomy, value, inputs),
        )


def _inputs(step: Step, anatomy: Anatomy) -> list[Value]:
    """What differs from sample to sample, where all have as many rows, and the outputs have them, too; a mask has two values only."""
    behind = anatomy.ancestors(list(anatomy.outputs))
    found = [v for v in anatomy.inputs if v.kind in ("float", "int") and v.number in behind]
    rows = {v.shape[0] for v in found}
    if len(rows) != 1 or any(step.values[n].shape[0] % min(rows) for n in anatomy.outputs if step.values[n].shape):
        return []
    found = [v for v in found if not v.read and not v.drawn and not rows_equal(step.array(v.number))]
    return [v for v in found if len(np.unique(step.array(v.number)[:FEWEST])) > 2]


def _alone(step: Step, anatomy: Anatomy, value: Value, inputs: list[Value]) -> bool:
    """No other input goes into the same layers first, or it stands beside it there, in columns of its own."""
    own, seen = _first(step, anatomy, value)
    for other in [v for v in inputs if v is not value]:
        theirs, met = _first(step, anatomy, other)
        if own & theirs and not _side_by_side(step, seen, met):
            return False
    return bool(own)


def _side_by_side(step: Step, ones: set[int], others: set[int]) -> bool:
    """Both come together as columns of one table, and nowhere else."""
    joins = [op for op in step.ops if op.name == "cat" and ones.intersection(op.outputs)]
    for op in joins:
        parts, whole = [step.values[n].shape for n in op.inputs], step.values[op.outputs[0]].shape
        ours, theirs = ({n for n in op.inputs if n in side} for side in (ones, others))
        columns = all(len(shape) == len(whole) and shape[:-1] == whole[:-1] for shape in parts)
        if not columns or not theirs or ours & theirs:
            return False
    return bool(joins)


def _first(step: Step, anatomy: Anatomy, value: Value) -> tuple[set[int], set[int]]:
    """The parameters of the layers that an input goes into first, and what it is until then."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [value.number]
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        for op in anatomy.users.get(number, []):
            if anatomy.is_layer(op):
                found |= {n for n in op.inputs if n in anatomy.weights}
            elif op.name not in SHAPES:
                waiting += op.outputs
    return {n for n in anatomy.ancestors(found) if step.values[n].origin == "parameter"}, seen


def _parting(step: Step, anatomy: Anatomy, value: Value, inputs: list[Value]) -> SourceLine | None:
    """Where the program's text treats this input otherwise than what the loss compares with, or than another input."""
    ours = sorted(anatomy.ancestors([value.number]), reverse=True)
    others = [sorted(anatomy.ancestors(anatomy.compared), reverse=True)]
    others += [sorted(anatomy.ancestors([v.number]), reverse=True) for v in inputs if v is not value]
    found = (step.parting(theirs, ours, whole=True) for theirs in others)
    return next((line for line in found if line is not None), None)


USE = Experiment("use", "Is every input related to what is learnt?", ask, first=40)
