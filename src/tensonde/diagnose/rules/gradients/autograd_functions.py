"""The user's own autograd functions."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("backward-ignores-gradient", severity="error", phase="backward")
def ignores_gradient(case: Case) -> list[Finding]:
    """The backward of a custom `autograd.Function` reads none of the gradients it receives, although the function is
    in the middle of the network (its output is not a single value): its result has nothing to do with the loss. The
    last function, which returns the loss itself, receives 1 and may ignore it.
    """
    names = {fact.name: fact for fact in case.facts.careless_functions}
    trace = case.first
    for op in trace.ops if trace is not None and names else ():
        if op.op not in names or not op.outputs or not op.outputs[0].shape or not op.outputs[0].requires_grad:
            continue
        return [
            case.finding(
                f"The backward of {op.op} does not use the gradient it gets",
                "By the chain rule, return the gradient times the derivative: grad_output * derivative.",
                site=f"{op.site}:grad_in",
                op=op.op,
                source=names[op.op].line,
                evidence={"applied_at": str(op.source or ""), "out.shape": list(op.outputs[0].shape)},
                confidence=0.95,
            )
        ]
    return []
