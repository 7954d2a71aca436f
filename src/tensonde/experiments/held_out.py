"""Does what was learnt hold on other data?

A model is evaluated, and the program compares what it says with targets. `relation.related` tells whether the two have anything to do with each other. Healthy: they have, once the
training has learnt something. Where they have not, a plain learner says what is the matter, for it can be asked about both sides: training data that it cannot learn
while it can learn those of the evaluation have targets that do not belong to them, and the other way round; if it can learn both, but not carry over what it learnt, the two
are prepared differently, or, where inputs are alike, their targets do not mean the same; and if it can, the model that is evaluated is not what was trained. If it can learn neither, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensonde.experiments.experiment import Answer
from tensonde.experiments.pairs import NOT, WELL, Rows, columns
from tensonde.experiments.relation import features, learnt, related
from tensonde.experiments.step import Array
from tensonde.model.site import SourceLine

NAME, QUESTION = "held-out", "Does what was learnt hold on other data?"
ENCODED = "encoded anew"
"""Nothing is known but that the program numbers words or classes anew for each of its data sets."""
FEWEST, MANY = 64, 192
"""Rows by which a relation shows; rows by which it shows which side is amiss."""


HALF = 0.5
ALIKE = 0.15
"""The largest difference between the distributions of a column on two sides that are prepared in the same way: of 192 rows each, chance makes 0.14 in five of a hundred."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a program compared in one evaluation: rows of numbers."""

    step: int
    said: Array
    targets: Array
    """Whole numbers where they are classes."""
    inputs: Array | None
    """As the model was given them."""
    compared: SourceLine | None
    targets_line: SourceLine | None
    inputs_line: SourceLine | None


def relation(evaluation: Evaluation) -> float | None:
    """How many deviations what was said lies from chance."""
    if len(evaluation.said) < FEWEST:
        return None
    said, targets = evaluation.said, evaluation.targets
    if targets.ndim == 1:
        counted = targets >= 0  # others are told to be left out
        said, targets = said[counted], targets[counted]
        if len(said) < FEWEST:
            return None
        most = said.shape[1] if said.ndim == 2 else int(max(said.max(), targets.max())) + 1
        said, targets = (said if said.ndim == 2 else columns(said, most)), columns(targets, most)
    said, targets = said.reshape(len(said), -1), targets.reshape(len(targets), -1)
    return related(said, targets) if said.shape == targets.shape else None


def answer(
    evaluation: Evaluation, trained: Sequence[Rows], encoded: Callable[[], SourceLine | None] = lambda: None
) -> Answer:
    """With rows of the training's inputs and of each of its targets. `encoded`: the line of the program that numbers words or classes anew for each of its data sets."""
    stands = relation(evaluation)
    numbers = {"rows": float(len(evaluation.said)), **({} if stands is None else {"stands": stands})}
    healthy = None if stands is None or stands < NOT else True
    why = (
        "too few outputs were compared, or they are all the same"
        if stands is None
        else f"outputs and targets of an evaluation agree {stands:.0f} standard deviations above chance"
    )
    anew = None if healthy else encoded()
    compared, part = anew or evaluation.compared, ENCODED if anew is not None else ""
    both = [(rows, asked) for rows in trained if (asked := _alike(evaluation, rows.x, rows.y)) is not None]
    if not both:
        return Answer(healthy, why, numbers, source=compared, part=part)
    # What is evaluated is the target that looks most like it: a program may have several.
    rows, (x, y, other, theirs) = min(both, key=lambda pair: _unlike(pair[1][1], pair[1][3]))
    line = rows.line
    told = {"training": learnt(x, y), "evaluation": learnt(other, theirs), "across": learnt(x, y, other, theirs)}
    if any(value is None for value in told.values()):
        return Answer(healthy, why, numbers, source=compared, part=part)
    own, there, across = numbers["training"], numbers["evaluation"], numbers["across"] = [
        v or 0.0 for v in told.values()
    ]
    if (
        own < NOT and there > WELL and across < HALF * there
    ):  # samples of one class are said alike, and may be right together by chance
        return Answer(
            False,
            "the training targets do not belong to the training inputs",
            numbers,
            source=line,
            part="training targets",
        )
    if own > WELL and there < NOT and across < HALF * own:
        source = evaluation.targets_line or evaluation.compared
        return Answer(
            False,
            "the evaluation targets do not belong to the evaluation inputs",
            numbers,
            source=source,
            part="evaluation targets",
        )
    if own > WELL and there > WELL and across < NOT and (stands is None or stands < there):
        # A model that says as much of the evaluation as what is learnt there has carried over what it learnt.
        how = _prepared(x, y, other, theirs, evaluation.inputs)
        if not how and _unlike(x, other) < ALIKE:
            return Answer(
                False,
                "inputs are alike on both sides, and go with other targets",
                numbers,
                source=anew or line or compared,
                part="meaning",
            )
        source = evaluation.inputs_line or evaluation.compared
        return Answer(
            False, "the evaluation inputs are preprocessed differently" + how, numbers, source=source, part="inputs"
        )
    if across > WELL and stands is not None and stands < NOT:
        return Answer(
            False, "a simple model that learns from the training data does well in the evaluation, but this model does not", numbers, source=evaluation.compared, part="model",
        )  # fmt: skip
    beside = max((r.fits for r in trained if r is not rows and len(r.x) == len(rows.x)), default=0.0)
    if beside > WELL and max(own, there, across) < NOT and stands is not None and stands < NOT:
        numbers["another target"] = beside
        return Answer(
            False,
            "another target can be predicted from the same inputs, but this one cannot",
            numbers,
            source=line,
            part="one target",
        )
    return Answer(healthy, why, numbers, source=compared, part=part)


def _alike(evaluation: Evaluation, x: Array, y: Array) -> tuple[Array, Array, Array, Array] | None:
    """Rows of both sides, as many of one as of the other, where both are of the same kind."""
    other, theirs = None if evaluation.inputs is None else features(evaluation.inputs), evaluation.targets
    if other is None or min(len(x), len(other)) < MANY or x.shape[1] != other.shape[1] or len(other) != len(theirs):
        return None
    if theirs.ndim == 1:
        if y.shape[1] != int(theirs.max()) + 1:
            return None
        theirs = columns(theirs, y.shape[1])
    if theirs.shape[1:] != y.shape[1:]:
        return None
    rows = min(len(x), len(other))
    return x[:rows], y[:rows], other[:rows], theirs[:rows]


def _unlike(y: Array, theirs: Array) -> float:
    """How far the numbers of two tables are apart, column by column: the largest difference of their distributions."""
    apart = 0.0
    for a, b in zip(y.T, theirs.T, strict=True):
        at = np.concatenate([a, b])
        shares = [np.searchsorted(np.sort(column), at, "right") / len(column) for column in (a, b)]
        apart = max(apart, float(np.abs(shares[0] - shares[1]).max()))
    return apart


def _prepared(x: Array, y: Array, other: Array, theirs: Array, inputs: Array | None) -> str:
    """What makes them alike again."""
    scaled = (other - other.mean(0)) / np.maximum(other.std(0), 1e-12) * x.std(0) + x.mean(0)
    tried: dict[str, Array | None] = {": on another scale": scaled}
    if inputs is not None and inputs.ndim > 1:
        tried[": with columns in another order"] = features(np.flip(inputs, -1))
        tried[": with channels in another order"] = features(np.flip(inputs, 1))
    found = {name: learnt(x, y, changed, theirs) or 0.0 for name, changed in tried.items() if changed is not None}
    best = max(found, key=found.__getitem__)
    return best if found[best] > WELL else ""
