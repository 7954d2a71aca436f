"""Parts of a training that learn nothing: positions, one task of several, one input of several."""

from __future__ import annotations

from math import isfinite, sqrt

from tensonde.diagnose.analysis.answers import answers
from tensonde.diagnose.analysis.learnt import FEWEST, NO_BETTER, best_constant, where_they_part
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import AnswerFact
from tensonde.model.finding import Finding

APART = 4.0
"""Deviations between the loss and that of outputs that are given to other samples."""
TOGETHER = 3.0
"""The same, of several steps together."""
HALF = 0.5
"""Of the loss of the best constant: below, more is learnt than what is the same for all samples."""
SOME = 0.75
"""Of the loss of the best constant: what a training that has learnt something is below."""


@rule(
    "positions-unlearnt",
    severity="error",
    phase="data",
    unless=("nothing-learnt", "learning-rate-too-small", "learning-rate-collapses", "learning-rate-too-large", "output-same-for-all", "nan-origin", "no-gradient",
            "view-instead-of-transpose", "softmax-over-wrong-dimension"),
)  # fmt: skip
def positions_unlearnt(case: Case) -> list[Finding]:
    """In every late step tested, outputs can be given to other positions of the same sample without raising the loss,
    although the model gets something for each position and is compared with something that differs from one to the
    next; and the program's text mixes, shifts or reverses one of the two on its way and not the other: the model does
    not learn what belongs to which position. If the text does nothing of that kind, targets may be noisy.
    """
    losses = [value for _, value in case.series("loss")]
    told = [a for a in answers(case, "nothing-learnt") if "within" in a.numbers]
    late = [a for a in told if a.step >= max(40, case.steps // 5)]
    if case.steps < 2 * FEWEST or len(losses) < 16 or not all(map(isfinite, losses)) or not ended_by_itself(case):
        return []
    within = [a.numbers["within"] for a in late]
    if len(late) < 2 or max(within) >= APART or sum(within) / sqrt(len(within)) >= TOGETHER:
        return []
    if min(a.numbers["loss"] / best_constant(a) for a in late) < HALF:
        return []
    last, parting = late[-1], where_they_part(case)
    if parting is None:
        return []
    return [
        case.finding(
            f"The model does not learn what belongs to which position: in {len(late)} steps from {late[0].step} to {last.step}, outputs can be given to other positions of the same sample "
            "without raising the loss",
            "Check whether the positions of inputs and targets belong together: this line does something to one of them but not to the other.",
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
    """The loss is a sum of several tasks. In every late step tested, the outputs of one of them can be given to other
    samples without raising its term, and the term is no better than with the best constant, while another task has
    learned.
    """
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
                    "Check whether the targets of this term belong to the inputs: rows, order, column and scale.",
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
    """The training learns, but in every late step tested, one of several inputs can be given to other samples without
    raising the loss, and the program's text selects, shifts or shuffles that input differently from the targets or
    the other inputs. If the text does nothing of that kind, the input may carry no information, or may not be learned
    yet.
    """
    told = answers(case, "use")
    ratios = [
        a.numbers["loss"] / best_constant(a)
        for a in answers(case, "nothing-learnt")
        if a.step >= max(40, case.steps // 5) and a.numbers.get("constant", 0) > 0
    ]
    if case.steps < 2 * FEWEST or not ended_by_itself(case):
        return []
    for name in dict.fromkeys(a.names[0] for a in told):
        # Where a loss has no constant to be held against (it falls below 0), another input says whether something is learnt.
        if min(ratios, default=1.0) > SOME and (ratios or not any(a.healthy for a in told if a.names[0] != name)):
            continue
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
                f"{name} has nothing to do with what the model learns: the loss is {last.numbers['loss']:.3g} at step {last.step}, and {last.numbers['with_others']:.3g} with {name} of other samples",
                "Check whether it belongs to the same samples as the targets: this line does something to one of them but not to the other.",
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
