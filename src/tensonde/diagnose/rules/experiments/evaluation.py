"""What is learnt in train mode and lost where the model is used, by experiment."""

from __future__ import annotations

from tensonde.diagnose.analysis.answers import steadily
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule(
    "lost-in-eval-mode",
    severity="error",
    phase="forward",
    unless=("batch-norm-shared-by-layers", "batch-norm-never-updated", "statistics-never-updated", "batch-norm-tiny-batch", "batch-norm-momentum"),
)  # fmt: skip
def lost_in_eval_mode(case: Case) -> list[Finding]:
    """The batch of a step has a low loss in train mode, and that of a constant, or worse, when the same step is computed as in eval mode:
    the statistics that a batch norm has gathered do not fit what it normalises. Asked from step 40 on, in two steps at least, and only told where a
    model is used in eval mode."""
    if not any(root.eval_mode_seen for root in case.facts.roots.values()):
        return []
    return [
        case.finding(
            f"What is learnt is lost in eval mode: the same batch has a loss of {answer.numbers['loss']:.3g} in train mode, "
            f"{answer.numbers['in_eval']:.3g} in eval mode, and {answer.numbers['constant']:.3g} for a constant",
            f"Look at the running statistics of {answer.module or 'the batch norms'}: its momentum, the size and order of batches, and whether it "
            "is given the same kind of data in all its calls.",
            step=answer.step,
            site=f"{answer.module}:out" if answer.module else "loss:value",
            op=answer.op,
            source=answer.line,
            evidence={**answer.numbers, "standing": "confirmed"},
            confidence=0.9,
        )
        for answer in steadily(case, "modes")[:1]
    ]
