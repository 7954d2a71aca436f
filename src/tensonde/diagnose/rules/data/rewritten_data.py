"""Data that change from epoch to epoch because reading them writes."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("dataset-rewrites-its-data", severity="error", phase="data")
def rewrites(case: Case) -> list[Finding]:
    """`__getitem__` takes a sample from the data set's storage and changes it in place (`img = self.images[i]; img -=
    mean`), and the stored values were different after each pass: an index gives a view, not a copy, so each epoch
    normalizes again what was already normalized.

    Silent if values stop changing after the first pass (a clamp), if what is written is not part of the sample (a
    count of visits), if a cache is filled, and with workers, which write to copies.
    """
    found = []
    seen = set()
    for loader in case.facts.loaders:
        rewritten = loader.rewritten
        if not rewritten or rewritten.changed < 2 or not loader.steps or str(rewritten.line) in seen:
            continue
        seen.add(str(rewritten.line))
        found.append(
            case.finding(
                (
                    f"{rewritten.dataset}.__getitem__ writes into {rewritten.attribute}, which it keeps: the same index gives different values in each epoch"
                ),
                "Compute a new tensor (img = (img - mean) / std), or clone the sample before changing it.",
                step=None,
                source=rewritten.line,
                evidence={
                    "attribute": rewritten.attribute,
                    "passes_compared": rewritten.compared,
                    "values_had_changed": rewritten.changed,
                },
                confidence=0.95,
            )
        )
    return found[:1]
