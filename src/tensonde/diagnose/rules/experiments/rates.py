"""Steps that go too far, or nowhere, by experiment."""

from __future__ import annotations

from math import isfinite
from statistics import mean

from tensonde.diagnose.analysis.answers import answers
from tensonde.diagnose.analysis.divergence import optimizer_line, replaced
from tensonde.diagnose.analysis.learnt import FEWEST, NO_BETTER, at_rest, best_constant, micro_batches
from tensonde.diagnose.analysis.moves import largest_moves
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import AnswerFact
from tensonde.model.finding import Finding

HARDLY = 0.01
"""Of the loss: a training that gains more than this in all its steps is slow, and may be meant to be."""
LITTLE, MOVED = 0.1, 0.03
"""Of the loss, and of the size of the weights: what a training gains that has hardly begun, and how far its weights can have come."""
STRAIGHT = 0.5
"""Of a hundredfold gain: what a loss gives that is nearly a straight line."""
WORSE = 1.3
"""Of the loss of the best constant: what no training should be above."""


@rule("step-goes-too-far", severity="error", phase="optimizer", unless=("learning-rate-too-large",))
def too_far(case: Case) -> list[Finding]:
    """In every tested step, the update makes the loss of its own batch at least twice as large, although the gradient
    predicts that it falls, and the training ends in NaN, or no better than it started; or, in at least three steps,
    five updates on the same batch leave its loss higher than before. A clone with a hundredth of the learning rate
    makes it fall. Or, in every tested step, the update raises the loss of its own batch, and that loss is well above
    that of the best constant in at least two steps: the model is worse than one that ignores its inputs.
    """
    told = [a for a in answers(case, "own-batch") if a.numbers.get("before", 0.0) > 0]
    losses = [value for _, value in case.series("loss")]
    better = [a for a in told if a.numbers.get("at 0.01", 1e300) < a.numbers["before"]]
    if not told or not losses or len(case.stepping) != 1:
        return []
    if not better:
        return _rises(case, told)
    lost = all(a.numbers.get("after", 1e300) > 2 * a.numbers["before"] for a in told)
    worse = len(told) >= 3 and len(better) == len(told) and all(_higher(a) for a in told)
    improved = all(map(isfinite, losses)) and mean(losses[-4:]) < losses[0] and ended_by_itself(case)
    if not worse and (not lost or improved):
        return []
    first = better[0].numbers
    return [
        case.finding(
            f"Each step goes too far: at a learning rate of {first.get('lr', 0):g}, {'a few steps take' if worse else 'it takes'} the loss "
            f"of its own batch from {first['before']:.3g} to {first.get('at 1' if worse else 'after', float('inf')):.3g}; at a hundredth, "
            f"a few steps take it to {first['at 0.01']:.3g}",
            "Lower the learning rate by a factor of 10 to 100.",
            step=better[0].step,
            site="lr",
            source=better[0].line,
            evidence={**first, "standing": "confirmed"},
            confidence=0.9,
        )
    ]


@rule(
    "first-update-replaces-weights",
    severity="error",
    phase="optimizer",
    explains=("nan-origin", "nonfinite", "watchpoint", "exception", "value-not-finite"),
)
def replaces_weights(case: Case) -> list[Finding]:
    """The loss becomes non-finite in one of the first steps, and the weights are nothing but the first update: after
    one step of Adam, or another optimizer whose step is about the learning rate, most of them have the size of that
    rate, at least ten times the size such weights start with.
    """
    lost = next((step for step, value in case.series("loss") if not isfinite(value)), None)
    found = replaced(case, lost) if lost else None
    if found is None:
        return []
    rate = dict(case.series("lr/0"))[0]
    return [
        case.finding(
            f"The first step replaces the weights: at a learning rate of {rate:g} it makes {found[0]} about {found[1]:.0f} times as large, and the loss "
            f"is lost at step {lost}",
            "Lower the learning rate by a factor of 100 or more: a step of this optimizer moves every weight by about that rate.",
            site=f"{found[0]}:value",
            source=optimizer_line(case),
            evidence={
                "lr": rate,
                "weight": found[0],
                "growth": found[1],
                "lost_at_step": lost,
                "standing": "confirmed",
            },
            confidence=0.92,
        )
    ]


def _rises(case: Case, told: list[AnswerFact]) -> list[Finding]:
    """Where there was no time to try another rate."""
    worse = [
        a
        for a in answers(case, "nothing-learnt")
        if a.step >= 10 and a.numbers.get("constant", 0) > 0 and a.numbers["loss"] > WORSE * best_constant(a)
    ]
    if len(told) < 2 or len(worse) < 2 or any(a.numbers.get("after", 0) <= a.numbers["before"] for a in told):
        return []
    last, beside = told[-1], worse[-1].numbers
    return [
        case.finding(
            f"Each step goes too far: it takes the loss of its own batch from {last.numbers['before']:.3g} to {last.numbers.get('after', float('inf')):.3g}, and the loss is "
            f"{beside['loss']:.3g} where the best constant has {beside['constant']:.3g}",
            "Lower the learning rate by a factor of 10 to 100.",
            step=last.step,
            site="lr",
            source=last.line,
            evidence={
                **last.numbers,
                "loss": beside["loss"],
                "best_constant": beside["constant"],
                "standing": "confirmed",
            },
            confidence=0.85,
        )
    ]


def _higher(answer: AnswerFact) -> bool:
    """Five steps on the batch leave its loss higher than it was; not known: they did not get to the end."""
    return answer.numbers.get("at 1", 1e300) > 1.1 * answer.numbers["before"]


@rule(
    "learning-rate-far-too-small",
    severity="warning",
    phase="optimizer",
    unless=("learning-rate-too-small", "learning-rate-collapses", "no-gradient"),
)
def far_too_small(case: Case) -> list[Finding]:
    """The loss hardly falls in the whole training; or it ends above that of a constant; or it falls by less than a
    tenth while all steps together could not have moved any weight by a few hundredths of its size, and nothing was
    loaded that only needs fine-tuning. A clone learns its batch hardly at all at the training's rate, and many times
    better at a hundred times that rate, wherever this was tried at the full rate (or at all, if no rate of the
    training could move a weight): by a twentieth of the loss, or by nearly a hundred times as much, as when the loss
    is a straight line all the way.
    """
    rates = [value for _, value in case.series("lr/0")]
    losses = [value for _, value in case.series("loss") if isfinite(value)]
    told = [a for a in answers(case, "own-batch") if "at 100" in a.numbers and "at 1" in a.numbers]
    full = [a for a in told if a.numbers.get("lr", 0) >= 0.5 * max(rates, default=0.0)]
    told = full or (told if _can_hardly_move(case) else [])  # a schedule that was asked before it came to its full rate
    if not told or case.steps < FEWEST or len(losses) < 16 or not all(_slow(a) for a in told):
        return []
    part = max(4, len(losses) // 8)
    before, after = mean(losses[:part]), mean(losses[-part:])
    late = [a for a in answers(case, "nothing-learnt") if a.step >= case.steps // 5 and "apart" in a.numbers]
    worse = (
        bool(late)
        and not any(a.healthy for a in late)
        and after > NO_BETTER * micro_batches(case, late) * mean(best_constant(a) for a in late)
        and at_rest(losses)
    )
    still = case.steps >= 2 * FEWEST and before - after < LITTLE * abs(before) and _can_hardly_move(case)
    if (before - after > HARDLY * abs(before) and not worse and not still) or not ended_by_itself(case):
        return []
    last = told[-1]
    here, there = last.numbers["at 1"], last.numbers["at 100"]
    return [
        case.finding(
            f"A learning rate of {max(rates):g} is far too small: at {last.numbers['lr']:g}, {last.numbers.get('steps', 5):.0f} steps on one batch take its loss from "
            f"{last.numbers['before']:.4g} to {here:.4g}, and to {there:.4g} at a hundred times that rate",
            "Raise it by a factor of 10 or 100.",
            step=last.step,
            site="lr",
            source=last.line,
            evidence={
                "asked": [{"step": a.step, **a.numbers} for a in told],
                "loss": [before, after],
                "standing": "confirmed",
            },
            confidence=0.85,
        )
    ]


def _can_hardly_move(case: Case) -> bool:
    moves = largest_moves(case)
    return bool(moves) and max(moves) < MOVED and not any(f.loaded for f in case.facts.parameters.values())


def _slow(answer: AnswerFact) -> bool:
    before, here, there = (answer.numbers[name] for name in ("before", "at 1", "at 100"))
    gained = before - there > 0.05 * before or before - there > STRAIGHT * 100 * (before - here) > 0
    return before > 0 and gained and before - here < 0.1 * (before - there)
