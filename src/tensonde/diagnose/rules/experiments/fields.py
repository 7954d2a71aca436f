"""Fields of batches and targets, by experiment."""

from __future__ import annotations

from tensonde.diagnose.analysis.answers import answers, steadily
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding

SETTLED = 100
"""Steps after which outputs have come to the size of their targets."""
FEWEST = 150
"""Steps after which a copy should have been renewed."""


def _amiss(
    case: Case,
    part: str,
    title: str,
    advice: str,
    experiment: str = "fields",
    times: int = 2,
    standing: str = "confirmed",
) -> list[Finding]:
    return [
        case.finding(
            title.format(*answer.names, why=answer.why),
            advice,
            step=answer.step,
            site="loss:value",
            op=answer.op or None,
            source=answer.line,
            evidence={"values": list(answer.names), **answer.numbers, "standing": standing},
            confidence=0.9,
        )
        for answer in steadily(case, experiment, times=times)
        if answer.part == part
    ][:1]


@rule("fields-equal", severity="error", phase="data")
def equal(case: Case) -> list[Finding]:
    """Two fields of a batch that go into models are equal, value by value, in every batch examined."""
    return _amiss(
        case,
        "equal",
        "{0} and {1} are equal in every batch",
        "Look at where they are put together: one of them is stored twice.",
    )


@rule("columns-equal", severity="warning", phase="data", unless=("inputs-all-the-same", "inputs-constant"))
def columns_equal(case: Case) -> list[Finding]:
    """Two columns of a table passed to a model are equal in every row of every batch examined, number by number, or
    all columns are the same except for their scale: one column was taken for another.
    """
    advice = "Look at where the columns are put together: one is used twice, and another is missing."
    return [
        finding
        for part in ("equal columns", "one column")
        for finding in _amiss(case, part, "A column is there more than once: {why}", advice, "columns")
    ][:1]


@rule("inputs-all-the-same", severity="error", phase="data", unless=("inputs-constant",))
def all_the_same(case: Case) -> list[Finding]:
    """All samples passed to models are equal in every batch examined, while other fields of the batch differ: one
    array is refilled for each sample, so all samples are the last one.
    """
    return _amiss(
        case, "same rows", "All samples are the same in every batch: {why}",
        "Keep a copy of each sample: an array that is refilled holds the last sample wherever it was stored.",
    )  # fmt: skip


@rule("target-of-another-sample", severity="error", phase="data")
def another_order(case: Case) -> list[Finding]:
    """The targets are rows of the data that were reordered, while the inputs were not: each output is compared with
    the target of another sample. Detected if targets are the inputs themselves, or if only the targets are indexed by
    a permutation.
    """
    return _amiss(
        case, "another order", "The targets are in a different order than the outputs: {why}",
        "Put both in the same order before they are compared.",
    )  # fmt: skip


@rule("rows-of-other-samples", severity="error", phase="data", unless=("target-of-another-sample",))
def other_rows(case: Case) -> list[Finding]:
    """Each batch takes rows from several tables of the same length, and one input takes different rows than all the
    others: its values belong to other samples. Pairs and negatives, for which a table is used with both, and rows at
    a constant offset are not reported.
    """
    return _amiss(
        case, "other rows", "An input belongs to other samples than the rest of the batch: {why}",
        "Select all fields of a batch with the same index.",
    )  # fmt: skip


@rule("targets-masked-to-one-value", severity="error", phase="forward")
def masked_to_one_value(case: Case) -> list[Finding]:
    """The targets of a term differ from sample to sample, but a constant reduces the term to nothing: those that
    count are all the same. A mask or a weight hides the informative targets and keeps the others.
    """
    return _amiss(
        case, "one value", "There is nothing to learn from a term of the loss: the targets that count are all the same, the others are not",
        "Look at the mask or the weights of this term: they may be inverted.", "each-term",
    )  # fmt: skip


@rule(
    "targets-in-another-order",
    severity="error",
    phase="data",
    unless=("target-of-another-sample", "compared-with-another-sample"),
)
def shifted(case: Case) -> list[Finding]:
    """A plain learner that knows nothing of the model cannot predict the targets from the inputs as they are, but
    predicts them well when the targets are moved by a row or two, or reversed, within each batch.
    """
    return _amiss(
        case, "another order", "Inputs and targets do not belong together: {why}",
        "Look for a place where the targets are shifted, rolled or reversed, and the inputs are not.", "pairs", 1,
    )  # fmt: skip


@rule(
    "targets-at-other-positions",
    severity="warning",
    phase="data",
    unless=("target-too-far-on", "sees-its-target", "targets-in-another-order"),
)
def other_positions(case: Case) -> list[Finding]:
    """What stands at a position of a sequence tells a plain learner nothing about the target there, but what stands a
    few positions before or after it tells it well; and the program's text shifts or cuts one of the two, and not the
    other. Silent if the targets are the model's inputs, further on or before.
    """
    return _amiss(
        case, "lag", "Targets are at other positions than the inputs they belong to: {why}",
        "Start inputs and targets at the same position: this line shifts or cuts one of them.", "lags", 1, "consistent",
    )  # fmt: skip


@rule(
    "field-of-other-samples",
    severity="error",
    phase="data",
    unless=("target-of-another-sample", "rows-of-other-samples", "targets-in-another-order"),
)
def odd_field(case: Case) -> list[Finding]:
    """Besides the model's inputs, several fields go into the loss. A plain learner can predict one of them from the
    inputs of the same rows, but not another; and the program's text shuffles, sorts or shifts that one on its way,
    but not the first. This must hold in at least the last two tested steps.
    """
    told = [a for a in answers(case, "odd-field") if a.healthy is not None]
    last = told[-1] if told else None
    if last is None or last.part != "odd" or (len(told) > 1 and told[-2].part != "odd"):
        return []
    return [
        case.finding(
            f"{last.names[0]} belongs to other samples than the rest of the batch: the inputs predict {last.names[1]} ({last.numbers[last.names[1]]:.0f} standard deviations above chance), but not "
            f"{last.names[0]} ({last.numbers[last.names[0]]:.1f})",
            "Keep it in the order of the other fields: this line shuffles, sorts or shifts only this one.",
            step=last.step,
            site="loss:value",
            source=last.line,
            evidence={**last.numbers, "standing": "consistent"},
            confidence=0.85,
        )
    ]


@rule("opposites-of-the-chosen", severity="error", phase="data", unless=("fields-equal",))
def opposites(case: Case) -> list[Finding]:
    """What is drawn as the opposite of a choice (a negative) is, as often as the choice itself, something that the
    same user chose in an earlier step: both are of one kind, and the loss has to tell them apart. Detected if both
    are looked up in one table beside a third field, and pairs have recurred by the dozen.
    """
    return _amiss(
        case, "opposites", "Negatives are drawn from the positives: {why}",
        "Draw them from what was not chosen: look at the condition of the loop that draws them, or at the mask.", "opposites", 1,
    )  # fmt: skip


@rule("compared-with-another-sample", severity="error", phase="forward", unless=("target-of-another-sample",))
def another_sample(case: Case) -> list[Finding]:
    """When one sample is replaced by another, its row of the outputs changes, but a different row changes in what the
    loss compares them with: a teacher, a copy or a target made from the inputs got the samples in a different order.
    Reported if no comparison of the step is in order.
    """
    return _amiss(
        case, "another sample", "Outputs are compared with what belongs to other samples: {why}",
        "Use the same sample order for both: look for a flip, a roll, a sort or a permutation that is applied to only one of them.", "companions", 1,
    )  # fmt: skip


@rule("target-misplaced", severity="error", phase="data")
def misplaced(case: Case) -> list[Finding]:
    """Images are overlaid with the maps that the loss compares with (masks, label maps). Many samples agree, far
    better than with the maps of other samples, only if one of the two is mirrored, rotated or shifted: one was
    flipped or cropped on its way, and the other was not. Symmetric images agree both ways, and are not reported.
    """
    return _amiss(
        case, "misplaced", "Images and targets are not aligned: {why}",
        "Rotate, mirror and crop both in the same way, with the same random numbers.", "placement", 1,
    )  # fmt: skip


@rule("targets-of-another-size", severity="error", phase="data")
def another_size(case: Case) -> list[Finding]:
    """The numbers that the loss compares with are dozens of times larger than the model's outputs, in every tested
    step from the tenth on, and also in the last part of the training: outputs of a size of about 1 do not get there.
    Silent if outputs came near at any time.
    """
    told = answers(case, "sizes")
    late = [a for a in told if a.step >= case.steps // 4]
    if len(told) < 2 or not late or any(a.healthy for a in told) or case.steps < SETTLED:
        return []
    last = late[-1]
    given, wanted = last.numbers["outputs"], last.numbers["targets"]
    return [
        case.finding(
            f"Targets have a different scale than outputs: {wanted:.3g} against {given:.3g} at step {last.step}, and in every tested step",
            "Standardize the targets with the mean and standard deviation of the training targets, and scale outputs back where they are used.",
            step=last.step,
            site="loss:value",
            op=last.op or None,
            source=last.line,
            evidence={"values": list(last.names), **last.numbers, "standing": "confirmed"},
            confidence=0.85,
        )
    ]


@rule("target-among-inputs", severity="error", phase="data", unless=("target-is-input", "sees-its-target"))
def among_inputs(case: Case) -> list[Finding]:
    """What the loss compares with is a part of the model's input, equal in every row, and the output that is compared
    with a value changes with that very value: the model only has to pass it on, and learns nothing of what it should
    predict. An autoencoder, whose target is most of its input, is not reported, nor is a model that sees only what
    comes before.
    """
    return _amiss(
        case, "target among the inputs", "The model's input contains what it should predict: {why}",
        "Remove the target from the inputs: look at where a window begins and ends, or at the selected columns.", "leak",
    )  # fmt: skip


@rule("rows-never-change", severity="error", phase="data")
def unchanging(case: Case) -> list[Finding]:
    """A field that models get consists of the same few rows of a larger table in every tested step, while other fields
    with as many rows change from step to step: it is not selected with the index that selects the others.
    """
    return _amiss(
        case, "unchanging", "A field of the batch never changes while the others do: {why}",
        "Select it with the index that selects the other fields.",
    )  # fmt: skip


@rule("target-too-far-on", severity="warning", phase="data")
def too_far_on(case: Case) -> list[Finding]:
    """The targets are the model's input tokens, two or three positions on, in every batch examined, and no target is
    the next token: the model never learns what comes right after the input.
    """
    return _amiss(
        case, "too far on", "The targets are the inputs {why}: the next token is skipped",
        "Shift them by one: inputs ids[:, :-1], targets ids[:, 1:].",
    )  # fmt: skip


@rule("one-label-for-each-class", severity="warning", phase="data")
def one_each(case: Case) -> list[Finding]:
    """In every tested step, the loss compares with the same few labels, one of each class, while the model gets many
    more samples: a mask or a split leaves almost nothing to learn from.
    """
    return _amiss(
        case, "one each", "The loss sees one label of each class, the same in every step: {why} samples",
        "Look at the split, or at the mask that selects the training samples.",
    )  # fmt: skip


@rule("target-is-own-output", severity="error", phase="forward")
def own_output(case: Case) -> list[Finding]:
    """The classes that a loss compares with are those that the same output predicts: the loss can only confirm the
    model.
    """
    return _amiss(
        case,
        "own output",
        "The loss compares the model's output with itself, not with labels",
        "Pass the labels to the loss.",
    )


@rule("field-never-used", severity="warning", phase="forward")
def idle(case: Case) -> list[Finding]:
    """A field is unpacked together with others, all of which the step uses, but is used nowhere itself; the loss
    compares with another field of the same batch.
    """
    return _amiss(
        case,
        "idle",
        "{0} comes with the batch and has no influence on the loss",
        "Use it, or remove it from the batch.",
    )


@rule("bootstrap-of-wrong-sign", severity="error", phase="forward")
def negative(case: Case) -> list[Finding]:
    """A target falls when the model's own estimate within it rises: later rewards count with the wrong sign."""
    return _amiss(
        case, "negative", "The target falls when the value of the next state rises: {why} of it is included",
        "Add the discounted value; do not subtract it.", "bootstrap",
    )  # fmt: skip


@rule("bootstrap-above-one", severity="error", phase="forward")
def above_one(case: Case) -> list[Finding]:
    """A target includes more than the whole of the model's own estimate: values grow without end."""
    return _amiss(
        case, "above one", "The target includes more than the whole value of the next state: {why}",
        "The discount must be between 0 and 1.", "bootstrap",
    )  # fmt: skip


@rule("bootstrap-with-gradient", severity="error", phase="forward")
def with_gradient(case: Case) -> list[Finding]:
    """A target that contains the model's own estimate carries a gradient, so the model also moves its targets towards
    its predictions.
    """
    return _amiss(
        case, "gradient", "The target contains the model's own estimate and carries a gradient",
        "Compute the target under torch.no_grad(), with a copy of the network that is updated now and then.", "bootstrap",
    )  # fmt: skip


@rule("target-network-never-renewed", severity="error", phase="forward")
def never_renewed(case: Case) -> list[Finding]:
    """A target is made from data and the output of a copy of the trained model. The copy is the same, bit by bit, in
    all tested steps, and the program has no line that would load the trained state now and then. Values can only look
    as far ahead as the copy does. A reference that is compared with directly (distillation, a policy's reference) is
    not reported.
    """
    if case.steps < FEWEST or max((a.step for a in answers(case, "bootstrap")), default=0) < case.steps // 4:
        return []
    return _amiss(
        case, "never renewed", "The copy of the model that makes the targets never changes: {why}",
        "Copy the trained weights into it every few hundred steps, or make it a moving average of them.", "bootstrap",
    )  # fmt: skip


@rule("rewarded-actions-unlearnt", severity="error", phase="forward")
def unlearnt(case: Case) -> list[Finding]:
    """The log-probability of each action is multiplied by its return or advantage, and the loss rises when the
    actions with the higher ones become more likely: the sign is wrong, and the policy learns to avoid what is
    rewarded. The line has a variable named as a return, a reward or an advantage; costs are not reported.
    """
    return _amiss(
        case, "sign", "The policy learns to avoid what is rewarded: {why}",
        "Put a minus before it: the loss is -(log_prob * advantage).mean().", "reward", 1,
    )  # fmt: skip


@rule("action-drawn-twice", severity="error", phase="forward")
def drawn_twice(case: Case) -> list[Finding]:
    """Actions are drawn twice from the same probabilities, and only one of the draws reaches the log-probability that
    is trained. The other one acts, and its reward is credited to an action that was not taken.
    """
    return _amiss(
        case, "drawn twice", "The action whose probability is trained is not the one that acts: it is drawn again from the same probabilities",
        "Draw it once, and pass the action that acts to log_prob().", "reward",
    )  # fmt: skip
