"""Whether the training learns at all, by experiment."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite, sqrt
from statistics import mean, stdev

from tensonde.diagnose.analysis.answers import answers, steadily
from tensonde.diagnose.analysis.divergence import optimizer_line, replaced
from tensonde.diagnose.analysis.moves import largest_moves
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import AnswerFact
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine as Line

FEWEST = 40
"""Steps before anything is said."""
HARDLY = 0.01
"""Of the loss: a training that gains more than this in all its steps is slow, and may be meant to be."""
LITTLE, MOVED = 0.1, 0.03
"""Of the loss, and of the size of the weights: what a training gains that has hardly begun, and how far its weights can have come."""
STRAIGHT = 0.5
"""Of a hundredfold gain: what a loss gives that is nearly a straight line."""
NO_BETTER = 0.95
"""Of the loss of the best constant. Healthy programs are at 0.005 to 0.86, mistaken ones at 0.95 to 4.7."""
APART = 4.0
"""Deviations between the loss and that of outputs that are given to other samples."""
WORSE = 1.3
"""Of the loss of the best constant: what no training should be above."""
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
    ),
)
def nothing_learnt(case: Case) -> list[Finding]:
    """The loss of the last steps is no better than that of the best constant in the place of the model's output, the
    outputs can be given to other samples without making it worse, and it no longer falls: whatever the model has learnt, it
    is not which output belongs to which sample. Inputs and labels that do not belong together do that. Where samples come again and
    again, such a training learns them by heart: the loss falls, but outputs can be given to other samples in all steps that are asked, or in some of them while what is
    said in evaluations has nothing to do with the targets there. Where positions differ from each other in every sample alike, that much is learnt, and no more.

    Silent in short trainings and where the loss still falls, where several losses take turns, where a model makes the
    targets, and where the loss is no distance.
    """
    told = [a for a in answers(case, "nothing-learnt") if "apart" in a.numbers]
    losses = [value for _, value in case.series("loss")]
    if case.steps < FEWEST or len(losses) < 16 or not all(map(isfinite, losses)) or not ended_by_itself(case):
        return []
    late = [a for a in told if a.step >= max(10, case.steps // 5)]
    if not late:
        return []
    end = mean(losses[-max(4, len(losses) // 8) :])
    batches = _micro_batches(case, late)
    constant = batches * mean(_constant(a) for a in late)
    gained = constant - batches * mean(a.numbers["loss"] for a in late)
    by_heart = (_by_heart(told, case.steps) or _nowhere(case, told)) and end > SOME * constant
    # What is learnt after the last step that is asked may well differ from sample to sample.
    alike = _alike(late) and _at_rest(losses) and end > HALF * constant and gained >= 0.5 * (constant - end)
    if (
        not by_heart
        and not alike
        and (any(a.healthy for a in late) or not _at_rest(losses) or end < NO_BETTER * constant)
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
    parting = _parting(case)
    return [
        case.finding(
            f"Nothing is learnt: the loss is {end:.3g} in the end, and {constant:.3g} for the best constant"
            + (
                ", and outputs can be given to other samples throughout: what it gains, it learns by heart"
                if by_heart
                else ", and outputs can be given to other samples throughout: what is learnt is the same for all of them"
                if end < NO_BETTER * constant
                else ""
            )
            + (f". A clone learns one batch: {learnt[0]:.3g} becomes {learnt[1]:.3g} in a few steps" if learnt else ""),
            "Look whether inputs and labels of a sample belong together"
            + (
                ": this line does something to one of them that is not done to the other."
                if parting
                else " on their way to this line: an order, a shift, a permutation or a reshape that only one of them went through."
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


def _parting(case: Case) -> Line | None:
    """Where the ways of inputs and targets part in the program's text; None where a plain learner finds the targets by the inputs, so that they belong together."""
    if any(a.healthy for a in answers(case, "pairs")):
        return None
    return next(
        (a.line for a in reversed(case.facts.answers) if a.experiment == "nothing-learnt" and a.part == "parting"), None
    )


@rule(
    "positions-unlearnt",
    severity="error",
    phase="data",
    unless=("nothing-learnt", "learning-rate-too-small", "learning-rate-collapses", "learning-rate-too-large", "output-same-for-all", "nan-origin", "no-gradient",
            "view-instead-of-transpose", "softmax-over-wrong-dimension"),
)  # fmt: skip
def positions_unlearnt(case: Case) -> list[Finding]:
    """In every late step that is asked, outputs can be given to other positions of the same sample without making the loss worse, though the model is handed something for each position and is compared
    with something that differs from one to the next, and the program's text mixes, shifts or turns one of the two on its way and not the other: what belongs to which position is not
    learnt. Where the text does nothing of that kind, targets may be noisy."""
    losses = [value for _, value in case.series("loss")]
    told = [a for a in answers(case, "nothing-learnt") if "within" in a.numbers]
    late = [a for a in told if a.step >= max(40, case.steps // 5)]
    if case.steps < 2 * FEWEST or len(losses) < 16 or not all(map(isfinite, losses)) or not ended_by_itself(case):
        return []
    within = [a.numbers["within"] for a in late]
    if len(late) < 2 or max(within) >= APART or sum(within) / sqrt(len(within)) >= TOGETHER:
        return []
    if min(a.numbers["loss"] / _constant(a) for a in late) < HALF:
        return []
    last, parting = late[-1], _parting(case)
    if parting is None:
        return []
    return [
        case.finding(
            f"What belongs to which position is not learnt: in {len(late)} steps from {late[0].step} to {last.step}, outputs can be given to other positions of the same sample "
            "without making the loss worse",
            "Look whether the positions of inputs and targets belong together: this line does something to one of them that is not done to the other.",
            step=last.step,
            site="loss:value",
            source=parting,
            evidence={
                "positions_changed_about": [round(w, 2) for w in within],
                "steps_asked": [a.step for a in late],
                "standing": "suspected",
            },
            confidence=0.8,
        )
    ]


@rule(
    "task-learns-nothing",
    severity="error",
    phase="data",
    unless=("nothing-learnt", "target-of-another-sample", "targets-in-another-order", "learning-rate-collapses", "learning-rate-too-small", "learning-rate-zero", "held-out-at-odds",
            "targets-masked-to-one-value"),
)  # fmt: skip
def task_learns_nothing(case: Case) -> list[Finding]:
    """The loss is a sum of several tasks. In every late step that is asked, the outputs of one of them can be given to other samples without making its term worse, and the term
    is no better than with the best constant, while another task has learnt."""
    told = [a for a in answers(case, "each-term") if a.part == "task" and a.step >= max(40, case.steps // 5)]
    if case.steps < 2 * FEWEST or not ended_by_itself(case):
        return []
    tasks: dict[object, list[AnswerFact]] = {}
    for a in told:
        tasks.setdefault(a.line and (a.line.file, a.line.line), []).append(a)
    learnt = [key for key, asked in tasks.items() if asked[-1].healthy]
    for asked in tasks.values():
        apart = [a.numbers["apart"] for a in asked]
        if (
            len(asked) >= 2
            and learnt
            and max(apart) < APART
            and sum(apart) / sqrt(len(apart)) < TOGETHER
            and min(a.numbers["loss"] / a.numbers["constant"] for a in asked) > NO_BETTER
        ):
            last = asked[-1]
            return [
                case.finding(
                    f"One task of several learns nothing: its term is {last.numbers['loss']:.3g} at step {last.step}, {last.numbers['constant']:.3g} for the best constant, and its outputs can be given to "
                    "other samples, while another task learns",
                    "Look whether the targets of this term belong to the inputs: rows, order, column and scale.",
                    step=last.step,
                    site="loss:value",
                    source=last.line,
                    evidence={
                        "targets": list(last.names),
                        "outputs_changed_about": [round(a, 2) for a in apart],
                        "steps_asked": [a.step for a in asked],
                        "standing": "suspected",
                    },
                    confidence=0.8,
                )
            ]
    return []


@rule(
    "input-of-other-samples",
    severity="error",
    phase="data",
    unless=("input-without-influence", "rows-of-other-samples", "fields-equal", "rows-never-change", "no-gradient"),
)
def input_of_other_samples(case: Case) -> list[Finding]:
    """The training learns, but in every late step that is asked, one of several inputs can be given to other samples without making the loss worse, and the program's text takes, shifts or
    shuffles that input otherwise than the targets or the other inputs. Where the text does nothing of that kind, the input may carry nothing, or is not learnt yet."""
    told = answers(case, "use")
    ratios = [
        a.numbers["loss"] / _constant(a)
        for a in answers(case, "nothing-learnt")
        if a.step >= max(40, case.steps // 5) and a.numbers.get("constant", 0) > 0
    ]
    if case.steps < 2 * FEWEST or not ended_by_itself(case) or not ratios or min(ratios) > SOME:
        return []
    for name in dict.fromkeys(a.names[0] for a in told):
        asked = [a for a in told if a.names[0] == name]
        apart = [a.numbers["apart"] for a in asked]
        last = asked[-1]
        if (
            len(asked) < 2
            or any(a.healthy for a in asked)
            or last.line is None
            or last.step < case.steps // 4
            or sum(apart) / sqrt(len(apart)) >= TOGETHER
        ):
            continue
        return [
            case.finding(
                f"{name} has nothing to do with what is learnt: the loss is {last.numbers['loss']:.3g} at step {last.step}, and {last.numbers['with_others']:.3g} with {name} of other samples",
                "Look whether it belongs to the same samples as the targets: this line does something to one of them that is not done to the other.",
                step=last.step,
                site="loss:value",
                source=last.line,
                evidence={
                    "input": name,
                    "changed_about": [round(a, 2) for a in apart],
                    "steps_asked": [a.step for a in asked],
                    "standing": "suspected",
                },
                confidence=0.8,
            )
        ]
    return []


def _one_batch(case: Case) -> tuple[float, float] | None:
    """The loss of a batch before and after a few steps of a clone on it alone, where that learns something: model and optimizer work, and
    what they are given does not belong together."""
    for answer in reversed(answers(case, "own-batch")):
        before = answer.numbers.get("before", 0.0)
        after = min(answer.numbers.get(rate, before) for rate in ("at 1", "at 100"))
        if before > 0 and after < 0.9 * before:
            return before, after
    return None


def _constant(answer: AnswerFact) -> float:
    return max(answer.numbers["constant"], answer.numbers.get("earlier_constant", 0.0))


def _micro_batches(case: Case, told: list[AnswerFact]) -> int:
    """What losses are divided by where gradients add up: the recording has them as the criterion gave them, and steps are asked with what is differentiated."""
    recorded = dict(case.series("loss"))
    for answer in reversed(told):
        ratio = recorded.get(answer.step, 0.0) / (answer.numbers["loss"] or 1.0)
        number = round(ratio) if isfinite(ratio) else 0
        if number >= 1 and abs(ratio - number) <= 1e-3 * number:
            return number
    return 1


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
        and all(SOME * _constant(a) < a.numbers["loss"] < 1.2 * _constant(a) for a in settled)
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
        f"Nothing is learnt: the numbers of {name} hardly differ from sample to sample, by {answer.numbers['largest']:.2g} at most (one standard deviation), so that outputs are the same for all samples. The loss is {end:.3g} in the end, and {constant:.3g} for the "
        "best constant",
        "Look at how inputs are scaled: divided twice, or by far too much. Standardised inputs have a spread of about 1.",
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


def _outweighed(case: Case, answer: AnswerFact, end: float, constant: float) -> Finding:
    now, then = answer.numbers["term"], answer.numbers["term_of_varied_outputs"]
    return case.finding(
        f"Nothing is learnt: a term of the loss outweighs the rest. The loss is {end:.3g}, {constant:.3g} for the best constant; the "
        f"term is {now:.2g}, and would be {then:.3g} if outputs differed from sample to sample by 1",
        "Weigh the terms anew: both averaged, or both summed, over the same dimensions, and a weight that leaves room to learn.",
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


def _at_rest(losses: list[float]) -> bool:
    """The loss of the last quarter is not below that of the third, but for chance. What one loss differs from the next is chance, and no
    more than that: a loss that falls steadily is not noisy."""
    part = len(losses) // 4
    third, last = losses[2 * part : 3 * part], losses[3 * part :]
    chance = min(stdev(losses[2 * part :]), stdev(b - a for a, b in pairwise(losses[2 * part :])) / sqrt(2))
    noise = chance * sqrt(1 / len(third) + 1 / len(last))
    return mean(third) - mean(last) < max(3 * noise, 0.01 * abs(mean(third)))


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
    """Whatever the model gives, number by number, the loss of its batch stays at nine tenths of that of the best constant or more: there
    is next to nothing to learn from. The line named is what stands between the model and a small loss."""
    return [
        case.finding(
            f"The loss cannot fall: it is {answer.numbers['floor']:.3g} at least, whatever the model gives, and "
            f"{answer.numbers['constant']:.3g} for a constant",
            "Look at what this line does to the outputs: a bound that the targets lie beyond, or a scale that leaves no difference.",
            step=answer.step,
            site=f"{answer.module}:out" if answer.module else "loss:value",
            op=answer.op,
            source=answer.line,
            evidence={**answer.numbers, "standing": "confirmed"},
            confidence=0.85,
        )
        for answer in steadily(case, "reach")[:1]
    ]


@rule("step-goes-too-far", severity="error", phase="optimizer", unless=("learning-rate-too-large",))
def too_far(case: Case) -> list[Finding]:
    """In every step that was asked, the update makes the loss of its own batch at least twice as large, though the gradient
    says that it falls, and the training ends in NaN, or not better than it began; or, in three steps at least, five updates on the
    same batch leave its loss higher than it was. A clone with a hundredth of the learning rate makes it fall. Or, in every step that was asked, the update raises the loss of its own batch, and
    that loss is well above that of the best constant in two steps at least: the model is worse than one that ignores its inputs."""
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
            "Lower the learning rate tenfold to a hundredfold.",
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
    """A loss that is not finite in one of the first steps, and weights that are nothing but the first update: after one step of Adam, or another optimizer
    whose step is about the learning rate, most of them have the size of that rate, ten times what such weights begin with or more."""
    lost = next((step for step, value in case.series("loss") if not isfinite(value)), None)
    found = replaced(case, lost) if lost else None
    if found is None:
        return []
    rate = dict(case.series("lr/0"))[0]
    return [
        case.finding(
            f"The first step replaces the weights: at a learning rate of {rate:g} it makes {found[0]} about {found[1]:.0f} times as large, and the loss "
            f"is lost at step {lost}",
            "Lower the learning rate a hundredfold or more: a step of this optimizer moves every weight by about that rate.",
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
        if a.step >= 10 and a.numbers.get("constant", 0) > 0 and a.numbers["loss"] > WORSE * _constant(a)
    ]
    if len(told) < 2 or len(worse) < 2 or any(a.numbers.get("after", 0) <= a.numbers["before"] for a in told):
        return []
    last, beside = told[-1], worse[-1].numbers
    return [
        case.finding(
            f"Each step goes too far: it takes the loss of its own batch from {last.numbers['before']:.3g} to {last.numbers.get('after', float('inf')):.3g}, and the loss is "
            f"{beside['loss']:.3g} where the best constant has {beside['constant']:.3g}",
            "Lower the learning rate tenfold to a hundredfold.",
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
    """The loss hardly falls in the whole training, or ends above that of a constant, or falls by less than a tenth while all steps together could not have moved any weight by a
    few hundredths of its size, and nothing was loaded that is only to be adjusted; a clone learns its batch hardly at all at the training's rate, and many
    times better at a hundredfold one, wherever that was tried at the full rate (or at all, where no rate of the training could move a weight): by a twentieth of the loss, or nearly a hundred times as much, as where
    the loss is a straight line all the way."""
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
        and after > NO_BETTER * _micro_batches(case, late) * mean(_constant(a) for a in late)
        and _at_rest(losses)
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
            "Raise it tenfold or a hundredfold.",
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
