"""Whether the training learns at all, by experiment."""

from __future__ import annotations

from math import isfinite, sqrt
from statistics import mean

from tensonde.diagnose.analysis.answers import answers, steadily
from tensonde.diagnose.analysis.learnt import FEWEST, NO_BETTER, at_rest, best_constant, micro_batches, where_they_part
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import AnswerFact
from tensonde.model.finding import Finding

APART = 4.0
"""Deviations between the loss and that of outputs that are given to other samples."""
TOGETHER = 3.0
"""The same, of several steps together."""
CHANCE = 2.0
"""Deviations that are hardly more than chance. To say that outputs are alike for all samples takes that; a training that has just begun to tell samples apart is beyond."""
SAMPLES = 16
"""In a batch whose outputs are changed about."""
HALF = 0.5
"""Of the loss of the best constant: below, more is learnt than what is the same for all samples."""
SOME = 0.75
"""Of the loss of the best constant: what a training that has learnt something is below."""


@rule(
    "nothing-learnt",
    severity="error",
    phase="forward",
    unless=(
        "learning-rate-too-small",
        "learning-rate-collapses",
        "learning-rate-too-large",
        "learning-rate-far-too-small",
        "no-gradient",
        "nan-origin",
        "target-of-another-sample",
        "targets-in-another-order",
        "compared-with-another-sample",
        "target-is-own-output",
        "loss-broadcasts",
        "output-same-for-all",
        "inputs-all-the-same",
        "weight-decay-dominates",
        "learning-rate-zero",
        "learning-rate-never-reached",
        "clip-limit-tiny",
        "dropout-rate-extreme",
        "loss-held-up",
        "opposites-of-the-chosen",
    ),
)
def nothing_learnt(case: Case) -> list[Finding]:
    """The loss of the last steps is no better than with the best constant in place of the model's output, the outputs
    can be given to other samples without raising it, and it no longer falls: whatever the model has learned, it is
    not which output belongs to which sample. The cause may be inputs and labels that do not belong together. If
    samples recur, such a training memorizes them: the loss falls, but outputs can be given to other samples in all
    tested steps, or in some of them while the outputs in evaluations have nothing to do with the targets there. If
    positions differ from each other in every sample alike, that much is learned, and no more.

    Silent in short trainings and while the loss still falls, if several losses take turns, if a model makes the
    targets, and if the loss is not a distance.
    """
    told = [a for a in answers(case, "nothing-learnt") if "apart" in a.numbers]
    losses = [value for _, value in case.series("loss")]
    if case.steps < FEWEST or len(losses) < 16 or not all(map(isfinite, losses)) or not ended_by_itself(case):
        return []
    late = [a for a in told if a.step >= max(10, case.steps // 5)]
    if not late:
        return []
    end = mean(losses[-max(4, len(losses) // 8) :])
    batches = micro_batches(case, late)
    constant = batches * mean(best_constant(a) for a in late)
    turned = [a for a in answers(case, "signs") if a.part == "sign" and a.step < FEWEST]
    if len(turned) >= 2 and end > NO_BETTER * constant and not any(a.healthy for a in late):
        return [_wrong_sign(case, turned[0], end, constant)]
    gained = constant - batches * mean(a.numbers["loss"] for a in late)
    by_heart = (_by_heart(told, case.steps) or _nowhere(case, told)) and end > SOME * constant
    # What is learnt after the last step that is asked may well differ from sample to sample.
    alike = _alike(late) and at_rest(losses) and end > HALF * constant and gained >= 0.5 * (constant - end)
    if (
        not by_heart
        and not alike
        and (any(a.healthy for a in late) or not at_rest(losses) or end < NO_BETTER * constant)
    ):
        return []
    last = late[-1]
    small = [
        a
        for a in case.facts.answers
        if a.experiment == "nothing-learnt" and a.part == "small" and a.step >= case.steps // 5
    ]
    if small:
        return [_next_to_nothing(case, small[-1], end, constant)]
    if last.part == "term":
        return [_outweighed(case, last, end, constant)]
    learnt = _one_batch(case)
    parting = where_they_part(case)
    return [
        case.finding(
            f"Nothing is learned: the loss is {end:.3g} at the end, and {constant:.3g} for the best constant"
            + (
                ", and outputs can be given to other samples throughout: it only memorizes"
                if by_heart
                else ", and outputs can be given to other samples throughout: what it learns is the same for all of them"
                if end < NO_BETTER * constant
                else ""
            )
            + (f". A clone learns one batch: {learnt[0]:.3g} becomes {learnt[1]:.3g} in a few steps" if learnt else ""),
            "Check whether inputs and labels of a sample belong together"
            + (
                ": this line does something to one of them but not to the other."
                if parting
                else " on their way to this line: a reordering, a shift, a permutation or a reshape of only one of them."
            ),
            step=last.step,
            site="loss:value",
            source=parting or last.line,
            evidence={
                "compared_at": last.line.line if last.line is not None else None,
                "loss": end,
                "best_constant": constant,
                "ratio": end / constant,
                "outputs_changed_about": [round(a.numbers["apart"], 2) for a in late],
                "steps_asked": [a.step for a in late],
                "standing": "consistent" if learnt else "suspected",
            },
            confidence=0.75 if by_heart else 0.85,
        )
    ]


def _one_batch(case: Case) -> tuple[float, float] | None:
    """The loss of a batch before and after a few steps of a clone on it alone, where that learns something: model and optimizer work, and
    what they are given does not belong together."""
    for answer in reversed(answers(case, "own-batch")):
        before = answer.numbers.get("before", 0.0)
        after = min(answer.numbers.get(rate, before) for rate in ("at 1", "at 100"))
        if before > 0 and after < 0.9 * before:
            return before, after
    return None


def _by_heart(told: list[AnswerFact], steps: int) -> bool:
    """The best constant is learnt early, and from then to the end outputs can be given to other samples: which belongs to which is not
    learnt, only samples that come again and again, one by one. A task that can be learnt shows in that long before its loss is low."""
    asked = [a for a in told if a.step >= 10]
    settled = [a for a in asked if a.step >= steps // 10]
    return (
        len(asked) >= 5
        and len(settled) >= 3
        and settled[-1].step >= 0.4 * steps
        and all(a.numbers["apart"] < APART for a in asked)
        and all(SOME * best_constant(a) < a.numbers["loss"] < 1.2 * best_constant(a) for a in settled)
    )


def _alike(late: list[AnswerFact]) -> bool:
    """Outputs can be given to other samples in every late step, and in all of them together: what has made the loss smaller than that of a constant is the same for
    all samples, such as what stands at which position. A loss that compares outputs with each other is the same in any order, and tells nothing."""
    if not all(a.numbers.get("order_matters", 1.0) for a in late):
        return False
    apart = [a.numbers["apart"] for a in late]
    return (
        len(apart) >= 2
        and min(a.numbers.get("samples", 0) for a in late) >= SAMPLES
        and max(apart) < CHANCE
        and sum(apart) / sqrt(len(apart)) < CHANCE
    )


def _nowhere(case: Case, told: list[AnswerFact]) -> bool:
    """Outputs can be given to other samples in all steps that are asked, and in every evaluation of the second half they have nothing to do with what they are compared with."""
    asked = [a.numbers["apart"] for a in told if a.step >= 10]
    seen = [
        a.numbers["stands"]
        for a in case.facts.answers
        if a.experiment == "held-out" and a.step >= case.steps // 2 and "stands" in a.numbers
    ]
    return len(asked) >= 2 and max(asked) < APART and len(seen) >= 2 and sum(seen) / sqrt(len(seen)) < TOGETHER


def _next_to_nothing(case: Case, answer: AnswerFact, end: float, constant: float) -> Finding:
    name = answer.names[0] if answer.names and answer.names[0] else "the inputs"
    return case.finding(
        f"Nothing is learned: the values of {name} hardly differ from sample to sample, by {answer.numbers['largest']:.2g} at most (one standard deviation), so outputs are the same for all samples. The loss is {end:.3g} at the end, and {constant:.3g} for the "
        "best constant",
        "Check how inputs are scaled: divided twice, or by far too much. Standardized inputs have a spread of about 1.",
        step=answer.step,
        site="loss:value",
        source=answer.line,
        evidence={
            "largest_spread": answer.numbers["largest"],
            "loss": end,
            "best_constant": constant,
            "standing": "consistent",
        },
        confidence=0.85,
    )


def _wrong_sign(case: Case, answer: AnswerFact, end: float, constant: float) -> Finding:
    numbers = answer.numbers
    return case.finding(
        f"Nothing is learned: the output of {answer.op or 'this line'} has the wrong sign. At step {answer.step} the loss is {numbers['loss']:.3g}, {numbers['others']:.3g} with outputs of other samples, and "
        f"{numbers['turned']:.3g} with the sign flipped; at the end it is {end:.3g}, and {constant:.3g} for the best constant",
        "Flip the sign: for what belongs together, a distance should be small and a score large.",
        step=answer.step,
        site=f"{answer.module}:out" if answer.module else "loss:value",
        op=answer.op or None,
        source=answer.line,
        evidence={**numbers, "best_constant": constant, "standing": "confirmed"},
        confidence=0.9,
    )


def _outweighed(case: Case, answer: AnswerFact, end: float, constant: float) -> Finding:
    now, then = answer.numbers["term"], answer.numbers["term_of_varied_outputs"]
    return case.finding(
        f"Nothing is learned: a term of the loss outweighs the rest. The loss is {end:.3g}, {constant:.3g} for the best constant; the "
        f"term is {now:.2g}, and would be {then:.3g} if outputs differed from sample to sample by 1",
        "Reweight the terms: average both, or sum both, over the same dimensions, with a weight that leaves room to learn.",
        step=answer.step,
        site="loss:value",
        op=answer.op,
        source=answer.line,
        evidence={
            "loss": end,
            "best_constant": constant,
            "term": now,
            "term_of_varied_outputs": then,
            "standing": "consistent",
        },
        confidence=0.75,
    )


@rule(
    "loss-held-up",
    severity="error",
    phase="forward",
    unless=(
        "output-cannot-reach-targets",
        "activation-before-logit-loss",
        "softmax-over-wrong-dimension",
    ),
)
def held_up(case: Case) -> list[Finding]:
    """Whatever the model outputs, number by number, the loss of its batch stays at nine tenths of that of the best
    constant or more: there is almost nothing to learn from. The finding names the line that stands between the model
    and a small loss.
    """
    return [
        case.finding(
            f"The loss cannot fall: it is {answer.numbers['floor']:.3g} at least, whatever the model outputs, and "
            f"{answer.numbers['constant']:.3g} for a constant",
            "Look at what this line does to the outputs: a bound that excludes the targets, or a scale that removes all differences.",
            step=answer.step,
            site=f"{answer.module}:out" if answer.module else "loss:value",
            op=answer.op,
            source=answer.line,
            evidence={**answer.numbers, "standing": "confirmed"},
            confidence=0.85,
        )
        for answer in steadily(case, "reach")[:1]
    ]
