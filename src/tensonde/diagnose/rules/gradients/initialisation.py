"""How the weights begin: units that are all alike, activations that are saturated or dead from the start."""

from __future__ import annotations

from math import log

from tensonde.diagnose.analysis.flow import made_by
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import gradient_rows, some
from tensonde.model.facts import Alike, Feature, InputFact
from tensonde.model.finding import Finding
from tensonde.model.ops import SLOPES
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord


@rule("symmetric-initialisation", severity="error")
def symmetric(case: Case) -> list[Finding]:
    """All units of a layer start with the same weights and stay alike: they compute the same and get the same
    gradient.

    A zero-initialized last layer or LoRA matrix also starts alike, but its units diverge at the first steps, because
    their gradients differ. A layer counts only if it has moved without diverging, or if it is all zero and always
    gets a zero gradient.
    """
    hit = []
    for name, fact in case.facts.parameters.items():
        alike = fact.alike
        if not alike or alike.step < 5 or not fact.requires_grad:
            continue
        if alike.moved > 0 and alike.spread <= 1e-2 * alike.moved:
            hit.append((name, fact))
        elif alike.moved == 0:
            rows = gradient_rows(case, name)
            if len(rows) >= 5 and all(row["absmax"] == 0 for row in rows):
                hit.append((name, fact))
    if not hit:
        return []
    name, fact = hit[0]
    alike = fact.alike or Alike()
    return [
        case.finding(
            f"All units of {fact.owner} ({fact.owner_type}) start equal and stay equal: constant initialization",
            (
                "Initialize weights at random (the layer's default, xavier_uniform_, kaiming_uniform_); constants "
                "only for biases and norms."
            ),
            site=f"{name}:value",
            source=fact.filled or fact.made,
            evidence={
                "weights": [n for n, _ in hit][:10],
                "difference_between_units": alike.spread,
                "moved": alike.moved,
                "steps": alike.step,
            },
            confidence=0.95,
        )
    ]


@rule("activation-saturated", severity="warning", phase="forward")
def saturated(case: Case) -> list[Finding]:
    """A sigmoid or tanh is saturated at the very first step and still later: its slope, averaged over the batch, is a
    small part of its maximum, so the layers before it get almost no gradient.

    The slope is known exactly from the digest of the output: mean(s(1-s)) = mean - mean² - var, mean(1-t²) = 1 -
    mean² - var. For a function call (torch.tanh), the first step decides; a sigmoid must then be saturated on both
    sides, because a gate may well start closed.
    """
    found = []
    for name, module in case.facts.modules.items():
        most = SLOPES.get(module.type)
        if most is None:
            continue
        rows = case.digests(f"{name}:out", ("step", "mean", "std"))
        if not rows or rows[0]["step"] > 1:
            continue
        slopes = [(row["mean"] if most < 1 else 1.0) - row["mean"] ** 2 - row["std"] ** 2 for row in rows]
        if slopes[0] < 0.12 * most and sorted(slopes)[len(slopes) // 2] < 0.12 * most:
            found.append((name, module, slopes[0] / most))
    if not found:
        return _called_saturated(case)
    name, module, share = found[0]
    inputs = [row for row in case.facts.batches.inputs if row.absmax > 20]
    cause = f": inputs reach {inputs[0].absmax:g}" if inputs else ""
    return [
        case.finding(
            f"{some([n for n, *_ in found])} ({module.type}) is saturated from the first step{cause}",
            "Normalize the inputs (subtract the mean, divide by the standard deviation)."
            if inputs
            else "Start with smaller weights before it, normalize its input, or use another activation.",
            site=f"{name}:out",
            source=module.made,
            evidence={
                "slope_left": round(share, 4),
                "input_absmax": inputs[0].absmax if inputs else None,
                "input_mean": inputs[0].mean if inputs else None,
            },
            confidence=0.88,
        )
    ]


def _called_saturated(case: Case) -> list[Finding]:
    """The same for functions: the layer before is named, and where the program itself gave it its weights, that line."""
    trace = case.first
    for op in trace.ops if trace is not None else ():
        name = op.op.rstrip("_")
        most = {"tanh": 1.0, "sigmoid": 0.25}.get(name)
        if trace is None or most is None or not op.outputs or not op.outputs[0].requires_grad or not op.inputs:
            continue
        stats = op.outputs[0].stats
        if stats.get("count", 0) < 64 or "mean" not in stats or "std" not in stats:
            continue
        slope = (stats["mean"] if most < 1 else 1.0) - stats["mean"] ** 2 - stats["std"] ** 2
        if slope >= 0.12 * most or (most < 1 and not 0.2 < stats["mean"] < 0.8):
            continue
        layer = made_by(trace, op.inputs[0])
        names = [fact.name for fact in layer.inputs if fact.name] if layer is not None else []
        weights = [case.facts.parameters[n] for n in names if n in case.facts.parameters]
        if layer is None or not weights:
            continue
        filled = next((fact.filled for fact in weights if fact.filled), None)
        given = layer.inputs[0].stats.get("absmax", 0.0)
        return [
            case.finding(
                f"{name} after {weights[0].owner} is saturated from the first step: {slope / most:.1%} of its slope is left",
                "Normalize the inputs (subtract the mean, divide by the standard deviation)."
                if given > 20 and not filled
                else "Start with smaller weights before it (xavier_uniform_), or normalize its input.",
                site=f"{weights[0].owner}:out",
                op=op.op,
                source=filled or op.source,
                evidence={"slope_left": round(slope / most, 4), "layer_input_absmax": given, "weights": names},
                confidence=0.85,
            )
        ]
    return []


@rule("inputs-not-normalised", severity="warning", phase="forward", unless=("activation-saturated",))
def not_normalised(case: Case) -> list[Finding]:
    """Inputs are far from the scale that layers are initialized for, and the first loss shows it: the cross-entropy
    of an untrained model is about log(classes), and here it is several times that.

    Or one column of a table is thousands of times larger than the others and goes into a linear layer unscaled: the
    layer's output is that column, and the learning rate it tolerates is too small for all the others. Or the widest
    column is about as wide as layers are made for, and most of the others hardly vary (a hundredth of it): the whole
    table was scaled by one number instead of each column by its own, and the information of the others is lost. A
    normalization before the layer, or as the first layer, makes this harmless; then the rule is silent.
    """
    return _all_inputs(case) or _columns(case)


def _all_inputs(case: Case) -> list[Finding]:
    inputs = [row for row in case.facts.batches.inputs if row.step == 0 and row.absmax > 20]
    losses = case.series("loss")
    if not inputs or not losses or case.first is None:
        return []
    for op in case.first.ops:
        if (
            op.op == "cross_entropy"
            and len(op.inputs) >= 2
            and len(op.inputs[0].shape) >= 2
            and op.inputs[0].shape[1] > 1
        ):
            usual = log(op.inputs[0].shape[1])
            if losses[0][1] > 5 * usual:
                row = inputs[0]
                return [
                    case.finding(
                        (
                            f"Inputs of {row.root} reach {row.absmax:g}: the first loss is {losses[0][1]:.3g} "
                            f"instead of about {usual:.2g}"
                        ),
                        "Normalize the inputs (subtract the mean, divide by the standard deviation).",
                        site=f"{row.root}:in",
                        source=_made(case) or op.source,
                        evidence={
                            "absmax": row.absmax,
                            "mean": row.mean,
                            "std": row.std,
                            "first_loss": losses[0][1],
                        },
                        confidence=0.8,
                    )
                ]
    return []


def _columns(case: Case) -> list[Finding]:
    rows = [(row, row.features) for row in case.facts.batches.inputs if row.features]
    if case.first is None or len(rows) < 2:
        return []
    op = next((op for op in case.first.ops if op.op in ("linear", "addmm", "matmul", "mm") and op.inputs), None)
    if op is None or op.inputs[0].producer is not None or op.inputs[0].stats.get("absmax", 0) < 0.5 * rows[0][1].absmax:
        return []
    if all(0 < column.usual_spread < min(column.spread / 100, 0.05) and column.spread < 20 for _, column in rows):
        return [_hardly_vary(case, op, rows[0][0], rows[0][1])]
    if not all(column.absmax > 1000 * max(column.usual, 0.1) for _, column in rows):
        return []
    row, column = rows[0]
    return [
        case.finding(
            (
                f"Feature {column.index} of the input of {row.root} reaches {column.absmax:g}, the others "
                f"about {column.usual:.3g}"
            ),
            "Standardize each feature (subtract its mean, divide by its standard deviation).",
            site=f"{op.module or row.root}:in",
            source=_made(case) or case.facts.batches.call_line or op.source,
            evidence={"feature": column.index, "absmax": column.absmax, "others": column.usual},
            confidence=0.8,
        )
    ]


def _hardly_vary(case: Case, op: OpRecord, row: InputFact, column: Feature) -> Finding:
    return case.finding(
        f"Most features of the input of {row.root} hardly vary (standard deviation {column.usual_spread:.2g}) compared with feature {column.widest} ({column.spread:.2g})",
        "Standardize each feature by its own mean and standard deviation (mean(axis=0), std(axis=0)), not the whole table by one.",
        site=f"{op.module or row.root}:in",
        source=_made(case) or case.facts.batches.call_line or op.source,
        evidence={"feature": column.widest, "spread": column.spread, "usual_spread": column.usual_spread},
        confidence=0.8,
    )


def _made(case: Case) -> SourceLine | None:
    """The line that makes the inputs of the model, where an experiment has followed them."""
    return next((a.line for a in case.facts.answers if a.experiment == "fields" and a.line and a.healthy), None)
