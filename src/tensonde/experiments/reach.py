"""Could any output make the loss small?

What the model gives to the loss is put free, number by number, and moved until the loss is smallest. Healthy: that is far below the
loss of the best constant, for a comparison with given classes or numbers can be met. A loss that stays up whatever the model says can
teach it next to nothing: outputs that are bounded where targets are not, scores that are divided until they hardly differ.

Then the ops between the model and the comparison are put free one after the other. The first whose result would make the loss small holds
it up; where its result is only scaled afterwards, the scaling is named.

Not asked where the lowest loss is not known: soft targets, distributions, losses that fall below 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from tensonde.experiments.anatomy import RESHAPING, Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.fields import CLASSES
from tensonde.experiments.nothing_learnt import FEWEST_ROWS
from tensonde.experiments.step import NotPossible, Op, Step

HELD_UP, SMALL = 0.9, 0.5
"""Of the loss of the best constant: a floor above is too high; one below would do."""
MOST = 12
"""Ops that are put free."""
_DISTANCES = frozenset(("mse_loss", "smooth_l1_loss", "huber_loss"))
_BINARY = frozenset(("binary_cross_entropy", "binary_cross_entropy_with_logits"))
_SCALING = frozenset(("mul", "div"))
_TURNING = frozenset(("t", "transpose", "permute"))


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    outputs = anatomy.outputs
    if not outputs or step.loss in outputs or anatomy.targets_by_model:
        raise NotPossible("no layer's output is compared with given targets")
    if min((step.values[n].shape[0] for n in outputs if step.values[n].shape), default=0) < FEWEST_ROWS:
        raise NotPossible("the batch is too small")
    comparison = _comparison(step, anatomy)
    beside = {number: 0.0 for number, _ in anatomy.terms if not anatomy.outputs_behind(number)}
    with step.weighed(beside):
        loss, constant = step.loss_with({}), step.fit(outputs, anatomy.tied).loss
        if loss <= 0 or constant < 0.5 * loss:
            raise NotPossible("a constant is far better than the model, or is enough")
        floor = loss if loss < HELD_UP * constant else step.floor(list(outputs), HELD_UP * constant)
        numbers = {"loss": loss, "constant": constant, "floor": floor}
        if floor < HELD_UP * constant:
            yield Answer(
                True, f"it could fall to {max(floor, 0.0) / constant:.2f} of the loss of the best constant", numbers
            )
            return
        if all(op.name in RESHAPING or op.name in _TURNING for op in _way(anatomy, comparison)):
            raise NotPossible("nothing stands between the model and the comparison: the lowest loss was not found")
        op = _holding_up(step, anatomy, comparison, constant)
    yield Answer(
        False,
        f"whatever the model outputs, the loss is {floor:.3g} at least",
        numbers,
        source=op.source or step.loss_source,
        module=op.module,
        op=op.name,
    )


def _comparison(step: Step, anatomy: Anatomy) -> Op:
    """The one op that compares with classes or numbers that are given."""
    found = []
    for op in step.ops:
        if op.name not in CLASSES | _DISTANCES | _BINARY or not anatomy.before_loss.intersection(op.outputs):
            continue
        if len(op.inputs) < 2 or op.inputs[0] not in anatomy.trained or op.inputs[1] in anatomy.computed:
            raise NotPossible("the loss compares with a model's output")
        if op.name in _BINARY and not np.isin(step.array(op.inputs[1]), (0, 1)).all():
            raise NotPossible("targets are not classes, so the lowest loss is not known")
        found.append(op)
    if len(found) != 1:
        raise NotPossible("the loss is not a comparison with a known lowest value")
    return found[0]


def _holding_up(step: Step, anatomy: Anatomy, comparison: Op, constant: float) -> Op:
    """The first op behind the model whose result, put free, makes the loss small, or what only scales it afterwards."""
    way = _way(anatomy, comparison)
    scaling = [op for op in way if op.name in _SCALING and len(op.inputs) == 1]
    with suppress(NotPossible):  # there is time for some of them only
        for op in way[:MOST]:
            free = [n for n in op.outputs if n in anatomy.trained][:1]
            if free and step.floor(free, SMALL * constant) < SMALL * constant:
                return scaling[-1] if scaling and scaling[-1].index >= op.index else op
    return scaling[-1] if scaling else comparison


def _way(anatomy: Anatomy, comparison: Op) -> list[Op]:
    """The ops between what the model gives and the comparison."""
    reached = set(anatomy.outputs)
    wanted = anatomy.ancestors([comparison.inputs[0]])
    found = []
    for op in anatomy.step.ops:
        if (
            reached.intersection(op.inputs)
            and wanted.intersection(op.outputs)
            and anatomy.trained.intersection(op.outputs)
        ):
            reached.update(op.outputs)
            if not set(anatomy.outputs).intersection(op.outputs):
                found.append(op)
    return found


REACH = Experiment("reach", "Could the loss fall?", ask, first=10, times=2)
