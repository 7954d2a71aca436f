"""Data that change from epoch to epoch because reading them writes."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding


@rule("dataset-rewrites-its-data", severity="error", phase="data")
def rewrites(case: Case) -> list[Finding]:
    """`__getitem__` takes a sample out of what the data set keeps and changes it in place (`img = self.images[i]; img -= mean`),
    and the values that are kept were others after each pass: an index gives a view, not a copy, so each epoch normalises what
    was normalised before.

    Silent where values do not change any more after the first pass (a clamp), where what is written is not part of the sample
    (a count of visits), where a cache is filled, and with workers, which write into copies."""
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
                    f"{rewritten.dataset}.__getitem__ writes into {rewritten.attribute}, which it keeps: the same index "
                    "gives other values in each epoch"
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
