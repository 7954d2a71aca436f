"""Softmax where several answers may be right at once."""

from __future__ import annotations

from math import prod

from tensonde.diagnose.analysis.flow import made_by
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord

_THROUGH = ops(Trait.PASSES & ~Trait.SELECTS | Trait.CLAMPS_BELOW)


@rule("softmax-on-several-labels", severity="error", phase="forward")
def several_labels(case: Case) -> list[Finding]:
    """binary_cross_entropy gets the output of softmax, whose values sum to 1 over the labels of a sample, while the
    targets sum to more than 1 per sample on average: samples have several labels at once, and softmax makes them
    compete. Such a target can never be reached. Sigmoid gives each label its own probability.

    One-hot targets, which sum to 1, are not reported.
    """
    for trace, loss in case.trained_ops():
        if loss.op != "binary_cross_entropy" or len(loss.inputs) < 2:
            continue
        given, target = loss.inputs[:2]
        op = made_by(trace, given, _THROUGH)
        if op is None or op.op not in ("softmax", "Softmax") or not op.outputs:
            continue
        shape, dim = op.outputs[0].shape, op.arguments.get("dim")
        if not isinstance(dim, int) or shape != given.shape or target.shape != given.shape or not shape:
            continue
        if not -len(shape) <= dim < len(shape) or shape[dim] < 2:
            continue
        rows = prod(shape) / shape[dim]
        labels = target.stats.get("mean", 0.0) * prod(shape) / rows
        if target.stats.get("min", -1.0) < 0 or target.stats.get("max", 2.0) > 1 or labels < 1.05:
            continue
        return [
            case.finding(
                (
                    f"softmax before {loss.op}, whose targets have {labels:.3g} labels per sample on average: the labels compete "
                    "for a sum of 1"
                ),
                "Use sigmoid (or binary_cross_entropy_with_logits on the raw scores): labels are independent here.",
                step=trace.step,
                site=f"{op.site}:out",
                op=op.op,
                source=_chosen(case, op),
                evidence={
                    "labels_a_sample": labels,
                    "shape": list(shape),
                    "dim": dim,
                    "softmax_line": str(op.source or ""),
                    "loss_line": str(loss.source or ""),
                },
                confidence=0.95,
            )
        ]
    return []


def _chosen(case: Case, op: OpRecord) -> SourceLine | None:
    """Where softmax was chosen: the line that made the module, if it is one."""
    module = case.facts.modules.get(op.module)
    made = module.made if module is not None and module.type == "Softmax" else None
    return made or op.source
