"""Outputs that a bound keeps from learning."""

from __future__ import annotations

from math import inf

from tensonde.diagnose.analysis.flow import made_by
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import gradient_rows
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact

_DISTANCES = ops(Trait.VALUE_LOSS)
_WHOLE = ops(Trait.PASSES & ~Trait.SELECTS)
FEWEST_STEPS = 16
DEAD = 0.04


@rule("bounded-output-without-gradient", severity="warning", phase="backward")
def bounded_output(case: Case) -> list[Finding]:
    """The output of a linear layer is clamped (or rectified) and then compared with targets, and in step after step
    some of the layer's biases get a gradient of exactly 0. These outputs are outside the bounds for all samples,
    where the derivative is 0, and nothing can bring them back. The targets are hardly ever at the bounds, so these
    outputs are wrong.

    Silent if targets are at the bounds (black pixels are right when they are 0), if the loss is weighted or masked,
    or if outputs come back.
    """
    for trace, loss in case.trained_ops():
        if loss.op not in _DISTANCES or len(loss.inputs) != 2 or loss.arguments.get("reduction") not in ("mean", "sum"):
            continue
        given, target = loss.inputs
        op = made_by(trace, given, _WHOLE)
        bounds = _bounds(op) if op is not None else None
        if op is None or bounds is None or not given.requires_grad or given.shape != target.shape:
            continue
        layer = made_by(trace, op.inputs[0], _WHOLE)
        if layer is None or layer.op != "linear" or len(layer.inputs) < 3 or not layer.inputs[2].name:
            continue
        bias = layer.inputs[2].name
        rows = [row for row in gradient_rows(case, bias) if row["count"]]
        late = rows[len(rows) // 2 :]
        dead = min((row["zero"] / row["count"] for row in late), default=0.0)
        if len(rows) < FEWEST_STEPS or dead < DEAD or _at_bounds(target, bounds) > dead / 4:
            continue
        last = late[-1]
        return [
            case.finding(
                (
                    f"{op.op} before {loss.op} keeps {last['zero']} of {last['count']} outputs of {layer.module or layer.site} "
                    "outside of its bounds: they get no gradient"
                ),
                "Use sigmoid (or no bound) in training, and clamp only for display or saving.",
                step=rows[0]["step"],
                at=op,
                evidence={
                    "bounds": [str(bound) for bound in bounds],
                    "target.min": target.stats.get("min"),
                    "target.max": target.stats.get("max"),
                    "bias": bias,
                    "zero_gradients": {"first": rows[0]["zero"], "last": last["zero"], "of": last["count"]},
                    "steps": len(rows),
                },
                confidence=0.88,
            )
        ]
    return []


def _bounds(op: OpRecord) -> tuple[float, float] | None:
    if not op.inputs or not op.outputs:
        return None
    if op.op in ("relu", "relu_"):
        return 0.0, inf
    if op.op in ("relu6", "relu6_"):
        return 0.0, 6.0
    if op.op not in ("clamp", "clamp_", "clip", "clip_", "hardtanh", "clamp_min", "clamp_min_") or len(op.inputs) != 1:
        return None
    low = next((op.arguments[name] for name in ("min", "min_val", "1") if name in op.arguments), None)
    high = next((op.arguments[name] for name in ("max", "max_val", "2") if name in op.arguments), None)
    known = [bound for bound in (low, high) if isinstance(bound, int | float) and not isinstance(bound, bool)]
    if not known or len(known) != sum(bound is not None for bound in (low, high)):
        return None
    return (-inf if low is None else float(low), inf if high is None else float(high))


def _at_bounds(target: TensorFact, bounds: tuple[float, float]) -> float:
    """The part of the targets that lies at (or beyond) a bound: 1 where the digest does not tell."""
    stats = target.stats
    if not stats.get("count") or stats["max"] >= bounds[1]:
        return 1.0
    if stats["min"] > bounds[0]:
        return 0.0
    return (stats["zero"] + stats["negative"]) / stats["count"] if bounds[0] == 0.0 else 1.0
