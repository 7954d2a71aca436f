"""The user's own autograd functions."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("backward-ignores-gradient", severity="error", phase="backward")
def ignores_gradient(case: Case) -> list[Finding]:
    """The backward of an own `autograd.Function` reads none of the gradients that it is given, though the function stands
    in the middle of the network (its output is no single value): what comes out has nothing to do with the loss. The last
    function of all, which gives the loss itself, is given 1 and may leave it out."""
    names = {fact.name: fact for fact in case.facts.careless_functions}
    trace = case.first
    for op in trace.ops if trace is not None and names else ():
        if op.op not in names or not op.outputs or not op.outputs[0].shape or not op.outputs[0].requires_grad:
            continue
        return [
            case.finding(
                f"The backward of {op.op} does not use the gradient that it is given",
                "By the chain rule, return the gradient times the derivative: grad_output * derivative.",
                site=f"{op.site}:grad_in",
                op=op.op,
                source=names[op.op].line,
                evidence={"applied_at": str(op.source or ""), "out.shape": list(op.outputs[0].shape)},
                confidence=0.95,
            )
        ]
    return []
