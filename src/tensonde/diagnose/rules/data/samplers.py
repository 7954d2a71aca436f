"""Samples that can never be drawn."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding

PART = 4
"""A data set may count its samples several times over."""


@rule("sampler-weights-too-few", severity="error", phase="data")
def too_few_weights(case: Case) -> list[Finding]:
    """A WeightedRandomSampler has far fewer weights than its data set has samples (a quarter at most), for example
    because it gets one weight per class. It draws indices below the number of its weights: only the first few samples
    of the data set are ever seen, and they are memorized.
    """
    found = []
    for loader in case.facts.loaders:
        drawn, length = loader.weighted, loader.length
        if not drawn or not length or not loader.steps or drawn.weights * PART > length:
            continue
        found.append(
            case.finding(
                (
                    f"WeightedRandomSampler has {drawn.weights} weights for {length} samples: only the first "
                    f"{drawn.weights} are ever drawn"
                ),
                "Give one weight per sample: class_weights[labels], not one per class.",
                step=None,
                source=drawn.line or loader.made,
                evidence={
                    "weights": drawn.weights,
                    "samples": length,
                    "draws_in_a_pass": drawn.draws,
                    "dataset": loader.dataset,
                },
                confidence=0.96,
            )
        )
    return found[:1]
