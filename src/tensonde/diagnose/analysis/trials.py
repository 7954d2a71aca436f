"""What became of the change that a finding suggests, where a clone of the training has tried it."""

from __future__ import annotations

from dataclasses import replace

from tensonde.diagnose.analysis.answers import answers
from tensonde.diagnose.case import Case
from tensonde.model.finding import Finding

OWN = "with its own gradients"
CHANGES = {
    "gradients-never-cleared": (OWN, "with gradients of its own batch only"),
    "clip-limit-tiny": (OWN, "with gradients that are not clipped"),
    "weight-decay-dominates": ("without decay", "without weight decay"),
    "learning-rate-too-large": ("at 0.01", "at a hundredth of the learning rate"),
    "divergence": ("at 0.01", "at a hundredth of the learning rate"),
    "learning-rate-too-small": ("at 100", "at a hundred times the learning rate"),
}
"""By rule: the trial that makes the change, and what it is called."""
BETTER = 0.05
"""Of the loss of the batch: what the change must gain over the steps as they are."""


def tried(case: Case, finding: Finding) -> Finding:
    """The finding, with what the trial gave, where that is better by far: then the cause is confirmed."""
    change = CHANGES.get(finding.rule)
    if change is None:
        return finding
    for answer in answers(case, "own-batch"):
        numbers = answer.numbers
        before, changed = numbers.get("before", 0.0), numbers.get(change[0])
        if changed is None or before <= 0 or "steps" not in numbers or "after" not in numbers:
            continue
        once = change[0] == OWN
        now = numbers["after"] if once else numbers.get("at 1", numbers.get("after", float("inf")))
        if changed < before and changed < now - BETTER * before:
            steps = "one step" if once else f"{numbers['steps']:.0f} steps"
            said = (
                f"Tried on a clone: {change[1]}, {steps} on the batch of step {answer.step} {'takes' if once else 'take'} its loss from "
                f"{before:.3g} to {changed:.3g}; as it is, to {now:.3g}."
            )
            evidence = {
                **finding.evidence,
                "tried": {"before": before, "as_it_is": now, change[0]: changed},
                "standing": "confirmed",
            }
            return replace(finding, advice=f"{finding.advice} {said}", evidence=evidence)
    return finding
