"""Does every task of a loss that is a sum learn something?

The loss is taken apart into what is added up. Of each term that compares outputs of its own with data, the question of `nothing_learnt` is asked by itself, with the other
terms at 0: what the best constant gives, and whether its outputs can be given to other samples. A loss that falls because of one task hides that another learns nothing.
Healthy: the outputs of each term suffer when they are given to other samples.

And is there anything to learn? Where a constant takes a term to nothing, though the numbers that it compares with differ from sample to sample, only those count that are
all the same: a mask that hides the wrong side.

Not asked of terms that compare with nothing (a penalty, a divergence), or whose outputs other terms use as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.nothing_learnt import APART, BETTER, FEWEST_ROWS, apart
from tensonde.experiments.sameness import rows_equal
from tensonde.experiments.step import NotPossible, Step, Value

MOST = 4
NOTHING = 1e-4
"""Of the spread of the numbers that are compared with: what a constant leaves where they are all the same."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    if anatomy.targets_by_model or anatomy.random_targets:
        raise NotPossible("a model makes the targets of the loss, or there are none")
    terms = anatomy.terms
    if len(terms) < 2:
        raise NotPossible("the loss is not a sum")
    behind = {number: anatomy.outputs_behind(number) for number, _ in terms}
    asked = 0
    for number, adding in terms:
        others = frozenset().union(*(behind[other] for other, _ in terms if other != number))
        outputs = {n: anatomy.outputs[n] for n in behind[number] - others}
        targets = _targets(step, anatomy, number)
        rows = {step.values[n].shape[0] for n in outputs if step.values[n].shape}
        if any(anatomy.ancestors([number]) & {f.output} for f in step.functions):
            continue  # a gradient that is turned round: what others shall not learn
        if not outputs or outputs.keys() != behind[number] or not targets or len(rows) != 1 or min(rows) < FEWEST_ROWS:
            continue
        asked += 1
        if asked > MOST or step.seconds_left() <= 0:
            return
        made = anatomy.makers(number)
        source = (made[-1].source if made else None) or adding.source
        names = tuple(target.name for target in targets if target.name)
        with step.weighed({other: 0.0 for other, _ in terms if other != number}):
            loss = step.loss_with({})
            constant = step.fit(outputs).loss
            if constant <= NOTHING * _spread(step, targets):
                yield Answer(
                    False,
                    "the targets that count are all the same",
                    {"constant": constant},
                    names,
                    source,
                    part="one value",
                )
                continue
            if loss <= 0 or constant <= 0:
                continue
            numbers = {
                "loss": loss,
                "constant": constant,
                "apart": apart(step, list(outputs), loss, min(rows)),
                "rows": float(min(rows)),
            }
        healthy = loss < BETTER * constant or numbers["apart"] > APART
        yield Answer(
            healthy, f"{loss / constant:.2f} of the loss of the best constant", numbers, names, source, part="task"
        )
    if not asked:
        raise NotPossible("no term compares its own outputs with data")


def _targets(step: Step, anatomy: Anatomy, term: int) -> list[Value]:
    """What the term compares with that differs from sample to sample; not what the model was handed, or its outputs are made of."""
    seen: set[int] = set()
    waiting = [term]
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            if number not in anatomy.outputs and number not in anatomy.compared:
                waiting += [n for op in anatomy.makers(number) for n in op.inputs]
    handed = {v.number for v in anatomy.inputs}
    known = [step.values[n] for n in seen & anatomy.compared if not anatomy.ancestors([n]) & handed]
    known = [v for v in known if v.kind in ("int", "float") and v.shape[0] >= FEWEST_ROWS]
    return [v for v in known if not rows_equal(step.array(v.number))]


def _spread(step: Step, targets: list[Value]) -> float:
    """Of numbers; classes have none."""
    return min((float(np.var(step.array(v.number))) for v in targets if v.kind == "float"), default=0.0)


EACH_TERM = Experiment("each-term", "Does every task of the loss learn something?", ask, first=10)
