"""Is the model as good in eval mode, on the very batch that it is trained on?

The step is computed again as in eval mode: dropout lets everything pass, batch norms use the statistics that they have gathered. Healthy: the loss is about
what it is in train mode, or lower, once the statistics have had time to settle. A model that has learnt something, and whose loss in eval mode is that of a
constant or worse, will look as if it had learnt nothing wherever it is used.

Then one norm after the other is put into eval mode by itself. The one that alone does most of the damage is named.

Not asked before step 40, and of models without batch norms that gather statistics.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.nothing_learnt import FEWEST_ROWS
from tensonde.experiments.step import NotPossible, Step

LEARNT, AT_CHANCE = 0.7, 0.95
"""Of the loss of the best constant: below, something is learnt; above, nothing is."""
MOST = 24
"""Norms that are tried by themselves."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    changing = [op for op in step.ops if op.by_mode and anatomy.before_loss.intersection(op.outputs)]
    norms = [op for op in changing if "norm" in op.name]
    if not norms:
        raise NotPossible("no batch norm gathers statistics")
    outputs = anatomy.outputs
    if not outputs or step.loss in outputs or anatomy.targets_by_model or anatomy.random_targets:
        raise NotPossible("no layer's output is compared with given targets")
    if min((step.values[n].shape[0] for n in outputs if step.values[n].shape), default=0) < FEWEST_ROWS:
        raise NotPossible("the batch is too small")
    loss, evaluated = step.loss_with({}), step.loss_in_eval()
    numbers = {"loss": loss, "in_eval": evaluated}
    if evaluated <= max(loss, 0.0) * 1.2:
        yield Answer(True, f"{evaluated:.3g} in eval mode, {loss:.3g} in train mode", numbers)
        return
    constant = step.fit(outputs, anatomy.tied).loss
    numbers["constant"] = constant
    if loss <= 0 or constant <= 0 or loss > LEARNT * constant:
        raise NotPossible("too little is learned to tell")
    if evaluated < AT_CHANCE * constant:
        yield Answer(
            True, f"{evaluated:.3g} in eval mode, {loss:.3g} in train mode, {constant:.3g} for a constant", numbers
        )
        return
    alone = {op.index: step.loss_in_eval([op.index]) for op in norms[:MOST]}
    worst = max(norms[:MOST], key=lambda op: alone[op.index])
    numbers["norm_alone"] = alone[worst.index]
    yield Answer(
        False,
        f"{evaluated:.3g} in eval mode, {loss:.3g} in train mode, {constant:.3g} for a constant",
        numbers,
        source=worst.source,
        module=worst.module,
        op=worst.name,
        part="eval mode",
    )


MODES = Experiment("modes", "Is the model as good in eval mode, on the same batch?", ask, first=40)
