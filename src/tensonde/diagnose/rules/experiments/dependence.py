"""What outputs and loss depend on, and what not, by experiment."""

from __future__ import annotations

from tensonde.diagnose.analysis.answers import steadily
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.facts import AnswerFact
from tensonde.model.finding import Finding


def _site(answer: AnswerFact) -> str:
    return f"{answer.module}:out" if answer.module else "loss:value"


@rule("input-without-influence", severity="error", phase="forward")
def without_influence(case: Case) -> list[Finding]:
    """The loss is the same to the last bit when a tensor that is passed to the model, or that the loss is computed
    from, gets the values of other samples: nothing learned depends on it. Tested in at least two steps. Or one column
    of a table, or of the model's output, is used twice for the same purpose, and another one nowhere.
    """
    twice = [a for a in steadily(case, "influence", times=1) if a.part == "taken twice"]
    return [
        case.finding(
            f"{answer.names[0] or 'An input'} has no influence on the loss",
            "Look at where it is used: the named line is the last op that its values reach.",
            step=answer.step,
            site=_site(answer),
            op=answer.op or None,
            source=answer.line,
            evidence={"value": answer.names[0], "use": answer.part, "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in [*twice, *(a for a in steadily(case, "influence") if a.part != "taken twice")][:2]
    ]


@rule(
    "output-without-influence",
    severity="error",
    phase="forward",
    unless=("gradient-all-zero", "units-dead", "no-gradient"),
)
def dead_end(case: Case) -> list[Finding]:
    """An op on the way to the loss gives the same result to the last bit when the layers before it are changed: what
    they compute ends there, in a product with zeros or in an activation that is off for every sample. Tested in at
    least two steps, so that a weight that starts at 0 is not reported.
    """
    found = steadily(case, "dead-ends")
    return [
        case.finding(
            (
                f"What {answer.names[0]} gives"
                if answer.names and answer.names[0]
                else "The output of the layers before it"
            )
            + f" ends at {answer.op}: "
            + ("it is multiplied by zeros" if answer.part == "zeros" else "the activation is 0 for every sample"),
            "Look at what it is multiplied by."
            if answer.part == "zeros"
            else "Look at the scale and the sign of its input.",
            step=answer.step,
            site=_site(answer),
            op=answer.op,
            source=answer.line,
            evidence={"why": answer.why, "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in found[:1]
    ]


@rule("output-same-for-all", severity="error", phase="forward", unless=("inputs-constant", "units-dead"))
def same_for_all(case: Case) -> list[Finding]:
    """The model gives the same output for all samples although its inputs differ; the finding names the op where
    differing rows become equal.
    """
    return [
        case.finding(
            f"The model gives the same output for all samples: their differences end at {answer.op or 'a layer'}",
            "Look at what this line does along the sample dimension (a mean, a product with zeros, an activation that is 0).",
            step=answer.step,
            site=_site(answer),
            op=answer.op or None,
            source=answer.line,
            evidence={**answer.numbers, "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in steadily(case, "sameness")[:1]
    ]


@rule(
    "samples-mixed",
    severity="error",
    phase="forward",
    unless=(
        "normalised-over-batch",
        "batch-and-time-exchanged",
        "state-viewed-across-samples",
        "view-instead-of-transpose",
    ),
)
def mixed(case: Case) -> list[Finding]:
    """One sample of a batch is replaced, and the outputs of others change, not counting batch norms. The finding
    names the first op at which the change crosses over. Silent if samples are combined by an index (graphs).
    """
    return [
        case.finding(
            f"A sample changes the outputs of other samples: {answer.op} mixes them",
            "Make this op work on one sample at a time: check its dimension, and reshapes before it.",
            step=answer.step,
            site=_site(answer),
            op=answer.op,
            source=answer.line,
            evidence={"standing": "confirmed"},
            confidence=0.9,
        )
        for answer in steadily(case, "independence") or _reshaped(case)
        if answer.part == "samples"
    ][:1]


def _reshaped(case: Case) -> list[AnswerFact]:
    """One step is enough where a reshape mixes samples: that does not depend on values."""
    return [
        answer for answer in steadily(case, "independence", times=1) if answer.op in ("view", "_unsafe_view", "reshape")
    ]


@rule("future-seen", severity="error", phase="forward", unless=("sees-its-target",))
def future(case: Case) -> list[Finding]:
    """The targets are the inputs one position on, and a later token changes the output before it: the model sees its
    target.
    """
    return [
        case.finding(
            f"Later tokens change outputs before them: {answer.op} lets positions see their targets",
            "Mask the future: is_causal=True, or a mask that hides every later position.",
            step=answer.step,
            site=_site(answer),
            op=answer.op or None,
            source=answer.line,
            evidence={"standing": "confirmed"},
            confidence=0.92,
        )
        for answer in steadily(case, "independence", times=1)
        if answer.part == "future"
    ][:1]


@rule("target-copied-from-input", severity="error", phase="forward", unless=("target-is-input", "sees-its-target"))
def copied(case: Case) -> list[Finding]:
    """The targets are the model's input tokens, position by position, and a token changes the output of its own
    position and none before it: the model learns only to repeat what it sees. A state that all tokens pass through
    (an autoencoder) is not reported.
    """
    return [
        case.finding(
            f"The targets are {answer.names[0] or 'the tokens that the model is handed'}, position by position: the model learns to copy",
            "Shift them by one: the model gets the tokens before those that it is compared with.",
            step=answer.step,
            site="loss:value",
            source=answer.line,
            evidence={"tokens": answer.names[0], "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in steadily(case, "independence")
        if answer.part == "copied"
    ][:1]


@rule("chosen-tokens-not-hidden", severity="error", phase="data", unless=("labels-constant",))
def not_hidden(case: Case) -> list[Finding]:
    """The model has to find hidden tokens: the loss counts some positions of a sequence, with tokens of all kinds. At
    every one of them, the target is the token that the model gets there. Either its input is not masked, or the
    targets are taken after masking. Silent if the positions that do not count are padding.
    """
    return [
        case.finding(
            f"The model gets the tokens that it has to find: at all {answer.numbers['counted']:.0f} positions that the loss counts, the target is the token of {answer.names[0] or 'the input'}",
            "Take the targets from the original tokens, and give the model a copy in which the chosen ones are masked.",
            step=answer.step,
            site="loss:value",
            source=answer.line,
            evidence={"tokens": answer.names[0], **answer.numbers, "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in steadily(case, "independence")
        if answer.part == "not hidden"
    ][:1]


@rule("term-without-gradient", severity="error", phase="forward", unless=("no-gradient",))
def without_gradient(case: Case) -> list[Finding]:
    """A term of the loss is computed with the model's parameters but has no gradient, since its path contains
    `detach()` or `no_grad`: every step computes it, and nothing is learned from it. Tensors that also reach the loss
    with a gradient are not reported.
    """
    return [
        case.finding(
            f"A term of the loss has no gradient: {answer.op} ends it on the way from the model",
            "Remove the detach() or no_grad(), or leave the term out of the loss.",
            step=answer.step,
            site=_site(answer),
            op=answer.op,
            source=answer.line,
            evidence={"why": answer.why, "standing": "confirmed"},
            confidence=0.85,
        )
        for answer in steadily(case, "terms")[:1]
    ]
