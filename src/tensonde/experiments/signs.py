"""Does the loss have the right sign?

Outputs that are still those of a model that has hardly begun may already have something to do with their targets, where they are compared by how near they are to each other. If the loss is higher with
them than with outputs that are given to other samples, by far, what comes between is of the wrong sign. So what is made of the outputs on the way to the loss is negated, one value after the other: where
the loss then is far below that of others' outputs, a sign before this value is wrong.

Healthy: outputs as they are give a lower loss than others', or it makes no difference yet. It is asked early, before the training itself makes outputs worse than others', and only told of trainings that
learn nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.nothing_learnt import APART, FEWEST_ROWS, SHUFFLES, changed_about, deviations
from tensonde.experiments.step import NotPossible, Step

EARLY = 32
"""The last step that is asked."""
MOST = 8
"""Values that are negated."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    if step.number > EARLY:
        raise NotPossible("the training is already under way")
    if anatomy.targets_by_model or anatomy.random_targets:
        raise NotPossible("a model makes the targets of the loss, or there are none")
    rows = {step.values[n].shape[0] for n in anatomy.outputs if step.values[n].shape}
    if len(rows) != 1 or min(rows) < FEWEST_ROWS:
        raise NotPossible("the batch is too small")
    count = rows.pop()
    loss = float(step.array(step.loss))
    others = changed_about(step, list(anatomy.outputs), count)
    apart = deviations(loss, others)
    if apart > -APART:
        yield Answer(
            True if apart > APART else None, "outputs are not worse than those of other samples", {"apart": apart}
        )
        return
    for number in _between(step, anatomy)[:MOST]:
        made = anatomy.makers(number)[-1]
        array = step.array(number)
        turned = step.loss_with({number: -array})
        draw = np.random.Generator(np.random.PCG64(8))
        changed = [step.loss_with({number: -array[draw.permutation(len(array))]}) for _ in range(SHUFFLES)]
        better = deviations(turned, changed)
        if turned < loss and better > APART:
            yield Answer(
                False,
                f"the loss is {loss:.3g}, {np.mean(others):.3g} with outputs of other samples, and {turned:.3g} with the sign of this value flipped",
                {
                    "loss": loss,
                    "others": float(np.mean(others)),
                    "turned": turned,
                    "apart": apart,
                    "turned_apart": better,
                },
                source=made.source,
                module=made.module,
                op=made.name,
                part="sign",
            )
            return
    yield Answer(None, "outputs are worse than those of other samples, and no sign makes them better", {"apart": apart})


def _between(step: Step, anatomy: Anatomy) -> list[int]:
    """What is made of the outputs before the loss, the last first: whole numbers, sizes and single numbers aside."""
    behind = anatomy.ancestors([step.loss])
    return [
        v.number
        for v in reversed(step.values)
        if v.number in anatomy.after_outputs
        and v.number in behind
        and v.number not in anatomy.outputs
        and v.kind == "float"
        and v.op is not None
        and prod(v.shape) >= FEWEST_ROWS
        and anatomy.makers(v.number)[-1].source is not None
        and "softmax" not in anatomy.makers(v.number)[-1].name
    ]


SIGNS = Experiment("signs", "Does the loss have the right sign?", ask, times=3)
