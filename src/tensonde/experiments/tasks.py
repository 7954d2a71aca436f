"""Is each of several targets learnt?

A loss that is a sum compares with several targets. Each term is taken by itself, the others being weighed with 0, and asked what
`nothing_learnt` asks of the whole: a constant in the place of the outputs behind it, and these outputs given to other samples. Healthy: every
term that compares with data is below the constant's, or suffers. A term at its constant from beginning to end learns nothing, however
well the others do: its target belongs to other samples, or its mask chooses the wrong ones.

Not asked of terms that compare with nothing (penalties, divergences), and where a model makes the targets.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensonde.experiments.anatomy import PASSING, Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.nothing_learnt import APART, BETTER, FEWEST_ROWS, apart
from tensonde.experiments.step import NotPossible, Op, Step

MOST = 4
"""Terms that are asked."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    terms = anatomy.terms
    if len(terms) < 2 or step.loss in anatomy.outputs:
        raise NotPossible("the loss is no sum of terms")
    if anatomy.targets_by_model:
        raise NotPossible("a model makes the targets of the loss")
    asked = 0
    for k, (number, _) in enumerate(terms):
        outputs = {n: anatomy.outputs[n] for n in anatomy.outputs_behind(number)}
        rows = {step.values[n].shape[0] for n in outputs if step.values[n].shape}
        if asked >= MOST or len(rows) != 1 or min(rows) < FEWEST_ROWS or not _compares(step, anatomy, number, outputs):
            continue
        asked += 1
        with step.weighed({other: 0.0 for other, _ in terms if other != number}):
            loss = step.loss_with({})
            constant = step.fit(outputs).loss
            if loss <= 0 or constant <= 0:
                continue
            deviations = apart(step, list(outputs), loss, next(iter(rows)))
        made = _comparison(anatomy, number)
        yield Answer(
            loss < BETTER * constant or deviations > APART,
            f"{loss / constant:.2f} of the loss of the best constant in term {k + 1}",
            {"loss": loss, "constant": constant, "apart": deviations, "terms": len(terms)},
            source=made.source if made is not None else step.loss_source,
            op=made.name if made is not None else "",
            part=f"term {k + 1}",
        )
    if not asked:
        raise NotPossible("the terms of the loss compare with no data")


def _compares(step: Step, anatomy: Anatomy, term: int, outputs: dict[int, int]) -> bool:
    """Data that the outputs behind it do not depend on has a part in it."""
    behind = anatomy.ancestors(list(outputs))
    return any(
        v.origin == "given" and v.shape and v.shape[0] >= FEWEST_ROWS and v.number not in behind and not v.drawn
        for number in anatomy.ancestors([term])
        for v in (step.values[number],)
    )


def _comparison(anatomy: Anatomy, term: int) -> Op | None:
    """The op that made a term, but for means and weights."""
    number = term
    while True:
        made = anatomy.makers(number)
        if not made:
            return None
        given = [n for n in made[-1].inputs if n in anatomy.trained]
        if made[-1].name not in PASSING or len(given) != 1:
            return made[-1]
        number = given[0]


TASKS = Experiment("tasks", "Is each of several targets learnt?", ask, first=10)
