"""What is learnt in train mode and lost where the model is used, by experiment."""

from __future__ import annotations

from math import prod, sqrt
from statistics import median

from tensonde.diagnose.analysis.answers import answers, steadily
from tensonde.diagnose.analysis.learnt import where_they_part
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import Spread
from tensonde.model.finding import Finding

FEWEST = 32
"""Samples whose spread tells something."""
SETTLED = 100
"""Steps in which something of every target is learnt."""
LEARNT = 0.75
"""Of the loss of the best constant: what a training that has learnt something is below."""
MANY, CHANCE = 200, 3.0
"""Rows of an evaluation by which chance shows; deviations from it."""
FAR, ALIKE = 30.0, 3.0
"""Times that inputs vary more; how far the factors of features may be apart."""


@rule(
    "lost-in-eval-mode",
    severity="error",
    phase="forward",
    unless=("batch-norm-shared-by-layers", "statistics-never-updated", "batch-norm-tiny-batch", "batch-norm-momentum"),
)  # fmt: skip
def lost_in_eval_mode(case: Case) -> list[Finding]:
    """The batch of a step has a low loss in train mode, but that of a constant, or worse, when the same step is
    computed as in eval mode: the statistics that a batch norm has gathered do not fit its inputs. Tested from step 40
    on, in at least two steps, and reported only if a model is used in eval mode.
    """
    if not any(root.eval_mode_seen for root in case.facts.roots.values()):
        return []
    return [
        case.finding(
            f"The model is much worse in eval mode: the same batch has a loss of {answer.numbers['loss']:.3g} in train mode, "
            f"{answer.numbers['in_eval']:.3g} in eval mode, and {answer.numbers['constant']:.3g} for a constant",
            f"Look at the running statistics of {answer.module or 'the batch norms'}: its momentum, the size and order of batches, and whether it gets the same kind of data in all its calls.",
            step=answer.step,
            site=f"{answer.module}:out" if answer.module else "loss:value",
            op=answer.op,
            source=answer.line,
            evidence={**answer.numbers, "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in steadily(case, "modes")[:1]
    ]


@rule("evaluated-many-times-larger", severity="error", phase="data", unless=("evaluated-on-another-scale",))
def many_times_larger(case: Case) -> list[Finding]:
    """Every feature (or channel) varies dozens of times more, or less, in evaluation than in training, all by about
    the same factor: inputs were scaled on one side only, for example by 255. One evaluation is enough. Smaller
    factors may be a chosen range; another rule covers them.
    """
    for root, rows in case.facts.scales.items():
        compared = {a.step for a in case.facts.answers if a.experiment == "held-out"}
        evaluated = [row for row in rows.evaluated if _many(row)]
        trained = [
            row
            for row in rows.trained
            if evaluated and len(row.std) == len(evaluated[0].std) and row.shape == evaluated[0].shape
        ]
        if len(trained) < 2 or not (sum(row.samples for row in trained) >= 2 * FEWEST or all(map(_many, trained))):
            continue
        usual = [median(values) for values in zip(*(row.std for row in trained), strict=True)]
        most = [max(values) for values in zip(*(row.std for row in trained), strict=True)]
        factors = [
            [a / b for a, b in zip(row.std, usual, strict=True) if b > 0]
            for row in evaluated
            if len(row.std) == len(usual)
        ]
        steady = all(b < 3 * a for a, b in zip(usual, most, strict=True) if a > 0)
        # What is said of the inputs is compared with targets: no sampler, and no plot.
        fewest = 1 if evaluated[0].step in compared else 2
        if not steady or not factors or not all(_scaled(row, fewest) for row in factors):
            continue
        factor = median(factors[0])
        return [
            case.finding(
                f"{root} is evaluated on inputs that vary {factor:.3g} times as much as its training inputs, in every feature",
                "Preprocess both in the same way: one of them is scaled, and the other is not.",
                step=evaluated[0].step,
                site=f"{root}:in",
                source=evaluated[0].scaled or evaluated[0].line,
                evidence={"factor": factor, "least": min(factors[0]), "most": max(factors[0]), "calls_in_eval_mode": len(evaluated), "standing": "suspected"},
                confidence=0.85,
            )
        ]  # fmt: skip
    return []


_AMISS = {
    "training targets": (
        "The training targets do not belong to the training inputs",
        "Look for a shuffle, a shift or a sort that is applied only to the training inputs or only to the training targets.",
    ),
    "evaluation targets": (
        "The evaluation targets do not belong to the evaluation inputs",
        "Look for a shuffle, a shift or a sort that is applied only to the evaluation inputs or only to the evaluation targets.",
    ),
    "inputs": (
        "The evaluation inputs are preprocessed differently from the training inputs",
        "Use the same preprocessing for both: the same scale and statistics, the same order of channels and columns.",
    ),
    "meaning": (
        "Training and evaluation targets do not mean the same",
        "Look for a difference between the two sides: how classes are numbered, the order of columns, the sign or the definition of the target, or targets of other rows.",
    ),
    "one target": (
        "One of several targets does not belong to its inputs, in training and evaluation",
        "Look for a reordering, a shift or a permutation that is applied only to this target, or to everything but it.",
    ),
    "model": (
        "The evaluated model has not learned what the training data teach",
        "Check the weights and the mode of the evaluated model, and what is done to its outputs.",
    ),
}


@rule(
    "held-out-at-odds",
    severity="error",
    phase="data",
    unless=("evaluated-many-times-larger", "evaluated-on-another-scale", "lost-in-eval-mode", "batch-norm-momentum"),
)  # fmt: skip
def held_out_at_odds(case: Case) -> list[Finding]:
    """A plain learner shows that the data of the training and of an evaluation are of different kinds: it learns the
    evaluation's data but not the training's, or the reverse, or both without transferring from one to the other. Or
    it transfers, but in every evaluation of the second half, the model's outputs have nothing to do with their
    targets, although its training loss is well below that of a constant. If the learner can learn neither side, this
    rule is silent: a plain learner cannot learn everything, and a model may memorize on purpose.
    """
    late = [a for a in answers(case, "held-out") if a.step >= case.steps // 2] or answers(case, "held-out")[-1:]
    amiss = [a for a in late if a.part in _AMISS]
    learnt = [a for a in answers(case, "nothing-learnt") if a.step >= max(10, case.steps // 5)]
    ratios = [a.numbers["loss"] / a.numbers["constant"] for a in learnt if a.numbers.get("constant", 0) > 0]
    if not amiss or not ended_by_itself(case):
        return []
    last = amiss[-1]
    if last.part in ("model", "one target") and any(a.healthy for a in late):
        return []
    if last.part == "model" and (not ratios or min(ratios) > LEARNT):
        return []
    if last.part == "one target" and case.steps < SETTLED:
        return []
    what, advice = _AMISS[last.part]
    numbers = last.numbers
    return [
        case.finding(
            f"{what}: a simple model that learns from training rows predicts other training rows {numbers['training']:.1f} standard deviations above chance, and "
            f"evaluation rows {numbers['across']:.1f}; one that learns from evaluation rows predicts others of them {numbers['evaluation']:.1f}"
            + (f" ({last.why})" if last.part == "inputs" else ""),
            advice,
            step=last.step,
            site="loss:value",
            source=last.line,
            evidence={**numbers, "standing": "consistent"},
            confidence=0.85,
        )
    ]


@rule(
    "evaluated-at-chance",
    severity="warning",
    phase="data",
    unless=(
        "held-out-at-odds",
        "evaluated-many-times-larger",
        "evaluated-on-another-scale",
        "lost-in-eval-mode",
        "nothing-learnt",
        "input-of-other-samples",
        "targets-in-another-order",
    ),
)
def at_chance(case: Case) -> list[Finding]:
    """The loss falls well below that of the best constant, but in every evaluation of the second half, the outputs
    have nothing to do with their targets, or are the opposite: the model memorized the training data, or learned the
    wrong way round, or the evaluation has data of another kind. Few rows, and a model that another rule accuses, are
    not reported.
    """
    late = [
        a
        for a in case.facts.answers
        if a.experiment == "held-out" and a.step >= case.steps // 2 and "stands" in a.numbers
    ]
    asked = [a for a in answers(case, "nothing-learnt") if a.step >= max(10, case.steps // 5)]
    ratios = [a.numbers["loss"] / a.numbers["constant"] for a in asked if a.numbers.get("constant", 0) > 0]
    if len(late) < 2 or not ratios or min(ratios) > LEARNT or case.steps < SETTLED or not ended_by_itself(case):
        return []
    stands = [a.numbers["stands"] for a in late]
    if (
        min(a.numbers["rows"] for a in late) < MANY
        or max(stands) >= 2 * CHANCE
        or sum(stands) / sqrt(len(stands)) >= CHANCE
    ):
        return []
    against = max(stands) < -CHANCE
    last = late[-1]
    anew = next((a.line for a in late if a.part == "encoded anew"), None)
    parting = None if anew is not None else where_they_part(case)
    return [
        case.finding(
            "What the model has learned does not help in the evaluation: "
            + ("the model is worse than chance there" if against else "the model is no better than chance there")
            + f" ({last.numbers['stands']:.1f} standard deviations of shuffled rows, {last.numbers['rows']:.0f} rows), while its loss in training is {min(ratios):.2f} of that of the best constant",
            "Look at the sign of the loss, or of what is compared."
            if against
            else "Number words and classes once, using the training data, and use the same numbers, scalers and columns in the evaluation: this line recreates them for each data set."
            if anew
            else "Check whether inputs and targets of the training belong together: this line does something to one of them but not to the other."
            if parting
            else "Check whether inputs and targets of the training belong together, and whether the evaluation is prepared like the training: the same vocabulary, classes and columns.",
            step=last.step,
            site="loss:value",
            source=(asked[-1].line if against else anew or parting) or last.line or asked[-1].line,
            evidence={"stands": [round(z, 2) for z in stands], "rows": last.numbers["rows"], "ratio": min(ratios), "standing": "suspected"},
            confidence=0.7,
        )
    ]  # fmt: skip


def _many(row: Spread) -> bool:
    """Enough samples, or enough positions of several samples."""
    features = max(1, len(row.std))
    return row.samples >= FEWEST or (row.samples >= 8 and row.samples * prod(row.shape) // features >= 8 * FEWEST)


def _scaled(factors: list[float], fewest: int) -> bool:
    """All by about the same, and by far."""
    if len(factors) < fewest or min(factors) <= 0 or max(factors) > ALIKE * min(factors):
        return False
    return min(factors) > FAR or max(factors) < 1 / FAR
