"""Gradients that are not the derivatives of what was computed, by experiment."""

from __future__ import annotations

from tensonde.diagnose.analysis.answers import steadily
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("gradient-of-own-function-wrong", severity="error", phase="backward", unless=("backward-ignores-gradient",))
def own_function(case: Case) -> list[Finding]:
    """The `backward` of a custom `autograd.Function` does not return the derivative of what its `forward` computes.
    The derivative was taken op by op and confirmed by a difference quotient. Functions that round, select or fire
    (straight-through estimators, surrogates) and functions that return their input unchanged (to reverse, scale or
    clip gradients) are not reported.
    """
    return [
        case.finding(
            f"The backward of {answer.op} is wrong: along one direction it gives {answer.numbers['gradient']:.3g}, and the output "
            f"changes by {answer.numbers['quotient']:.3g}",
            "Compare it with the derivative of forward: torch.autograd.gradcheck in double precision shows which input it is.",
            step=answer.step,
            site=f"{answer.module}:grad_in" if answer.module else "loss:grad",
            op=answer.op,
            source=answer.line,
            evidence={**answer.numbers, "standing": "confirmed"},
            confidence=0.92,
        )
        for answer in steadily(case, "truth")[:1]
    ]
