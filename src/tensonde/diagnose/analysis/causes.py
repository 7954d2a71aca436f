"""What makes an op give NaN or Inf: for each kind of op, the property of its inputs that explains it, and
what helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tensonde.diagnose.analysis.path import INSERTING, Origin, bad, count
from tensonde.model.trace import OpRecord, TensorFact

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7977e308}


@dataclass(frozen=True, slots=True)
class Cause:
    """`what` reads as the beginning of a sentence: "log of 0". `growth`: the op is innocent, its inputs had grown.
    `sure`: the inputs' statistics prove it."""

    what: str
    advice: str
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    growth: bool = False
    sure: bool = True


def name_of(op: OpRecord) -> str:
    return {
        "truediv": "div",
        "rtruediv": "div",
        "clip": "clamp",
        "matmul": "matmul",
        "mm": "matmul",
        "bmm": "matmul",
    }.get(op.op.rstrip("_"), op.op.rstrip("_"))


def floats(op: OpRecord) -> list[TensorFact]:
    return [fact for fact in op.inputs if "float" in fact.dtype or "complex" in fact.dtype]


def forward_cause(origin: Origin) -> Cause:
    """Why this op, given what it was given, gives what is not finite."""
    op = origin.op
    explain = _FORWARD.get(name_of(op))
    cause = explain(op, origin) if explain is not None else None
    return cause or _overflow(op, origin)


# -- one function for each kind of op ---------------------------------------------------------------


def _log(op: OpRecord, origin: Origin) -> Cause | None:
    (given,) = floats(op)[:1] or (None,)
    if given is None:
        return None
    edge = -1.0 if op.op == "log1p" else 0.0
    stats = given.stats
    if stats.get("min", 1.0) < edge:
        return Cause(
            f"{op.op} of a negative number",
            f"Keep the argument of {op.op} positive: clamp it, or find out why it is negative.",
            {"in.min": stats["min"], "in.negative": stats.get("negative", 0)},
        )
    if stats.get("min", 1.0) == edge or (edge == 0 and stats.get("zero")):
        advice = (
            "Clamp the argument away from 0 (x.clamp(min=1e-8)), or compute the logarithm directly: log_softmax, "
            "logsigmoid, a loss that takes logits."
        )
        return Cause(f"{op.op} of {edge:g}", advice, {"in.min": stats["min"], "in.zero": stats.get("zero", 0)})
    return None


def _divide(op: OpRecord, origin: Origin) -> Cause | None:
    given = floats(op) or list(op.inputs)
    below = (
        op.inputs[1]
        if len(op.inputs) > 1
        else op.inputs[0]
        if "input" in op.arguments or op.op in ("reciprocal", "rsqrt")
        else None
    )
    constant = op.arguments.get("other", op.arguments.get("1"))
    zeros = count(below.stats, "zero") if below is not None else float(constant == 0)
    if not zeros:
        return None
    both = len(given) > 1 and count(given[0].stats, "zero") and any(count(fact.stats, "nan") for fact in op.outputs)
    evidence: dict[str, float | str] = {"denominator.zero": zeros}
    if below is not None:
        evidence["denominator.min"] = below.stats.get("min", 0.0)
    return Cause(
        "division of 0 by 0" if both else "division by 0",
        "Keep the denominator away from 0 before dividing (n.clamp(min=1), + eps). torch.where "
        "afterwards hides the value, "
        "not its gradient.",
        evidence,
    )


def _root(op: OpRecord, origin: Origin) -> Cause | None:
    (given,) = floats(op)[:1] or (None,)
    if given is None:
        return None
    if count(given.stats, "negative"):
        return Cause(
            f"{op.op.rstrip('_')} of a negative number",
            "Clamp the argument to 0 or more before the root; rounding makes sums of squares negative.",
            {"in.min": given.stats["min"], "in.negative": given.stats["negative"]},
        )
    if op.op.startswith("rsqrt") and count(given.stats, "zero"):
        return Cause("1/sqrt of 0", "Add a small eps under the root.", {"in.zero": given.stats["zero"]})
    return None


def _exponential(op: OpRecord, origin: Origin) -> Cause | None:
    (given,) = floats(op)[:1] or (None,)
    if given is None or not given.stats:
        return None
    dtype = op.outputs[0].dtype if op.outputs else given.dtype
    limit = {"float16": 11.09, "float64": 709.78}.get(dtype, 88.72)
    most = given.stats.get("max", 0.0)
    if not most > limit:
        return None
    return Cause(
        f"{op.op.rstrip('_')} of {most:.4g} overflows {dtype} (the largest argument is {limit})",
        "Bound what goes into the exponential: tanh or clamp on the log-scale, subtract the maximum "
        "first, or stay in log space (logsumexp).",
        {"in.max": most, "limit": limit},
    )


def _power(op: OpRecord, origin: Origin) -> Cause | None:
    (given,) = floats(op)[:1] or (None,)
    exponent = op.arguments.get("exponent", op.arguments.get("1"))
    if given is None:
        return None
    power = float(exponent) if isinstance(exponent, int | float) else None
    if power is None:
        power = op.inputs[1].stats.get("min") if len(op.inputs) > 1 else None
    if power is not None and power < 0 and count(given.stats, "zero"):
        return Cause(
            f"0 to the power of {power:g}",
            "Keep the base away from 0.",
            {"in.zero": given.stats["zero"], "exponent": power},
        )
    if power is not None and power != int(power) and count(given.stats, "negative"):
        return Cause(
            f"negative number to the power of {power:g}",
            "A fractional power needs a base of 0 or more: clamp it or use abs.",
            {"in.min": given.stats["min"], "exponent": power},
        )
    return None


def _softmax(op: OpRecord, origin: Origin) -> Cause | None:
    for fact in op.inputs:
        dim = op.arguments.get("dim", -1)
        dim = dim if isinstance(dim, int) else -1
        dim = dim + len(fact.shape) if dim < 0 else dim
        rows = fact.stats.get(f"masked.{dim}", 0)
        if rows:
            evidence: dict[str, float | str] = {
                "in.rows_all_neg_inf": rows,
                "in.neg_inf": fact.stats["neg_inf"],
                "dim": float(dim),
            }
            if f"masked_row.{dim}" in fact.stats:
                evidence["sample"] = fact.stats[f"masked_row.{dim}"]
            return Cause(
                f"{op.op} over a row that is all -inf",
                "Every key of that row is masked. Mask with torch.finfo(dtype).min instead of -inf, "
                "let at least one key through, "
                "or drop empty samples.",
                evidence,
            )
        if count(fact.stats, "pos_inf"):
            return Cause(f"{op.op} of +inf", "Look at what made the infinity.", {"in.pos_inf": fact.stats["pos_inf"]})
    return None


def _loss_of_classes(op: OpRecord, origin: Origin) -> Cause | None:
    if len(op.inputs) > 1:
        target, ignored = op.inputs[1], op.arguments.get("ignore_index", -100)
        if "int" in target.dtype and target.stats.get("min") == target.stats.get("max") == ignored:
            return Cause(
                f"{op.op} over targets that are all ignored",
                "No target is left to average over: skip such batches, or use reduction='sum' and divide by max(n, 1).",
                {"target.min": ignored, "target.max": ignored},
            )
        if count(op.inputs[0].stats, "neg_inf"):
            return Cause(
                f"{op.op} of a class whose logit is -inf",
                "A target class is masked out: check the targets against the mask.",
                {"in.neg_inf": op.inputs[0].stats["neg_inf"]},
            )
    return None


def _average(op: OpRecord, origin: Origin) -> Cause | None:
    if any(fact.stats.get("count") == 0 or 0 in fact.shape for fact in op.inputs):
        return Cause(
            f"{op.op} of an empty tensor",
            "The selection before it is empty: test for that, or divide a sum by max(n, 1).",
            {"in.count": 0.0},
        )
    if op.op in ("std", "var") and any(
        fact.shape and 1 in (fact.shape[0], fact.stats.get("count")) for fact in op.inputs
    ):
        return Cause(
            f"{op.op} of a single value",
            "The unbiased estimate needs two values: unbiased=False, or a larger batch.",
            {"in.count": 1.0},
        )
    return None


def _inverse_cosine(op: OpRecord, origin: Origin) -> Cause | None:
    (given,) = floats(op)[:1] or (None,)
    if given is None or given.stats.get("absmax", 0.0) <= 1.0:
        return None
    return Cause(
        f"{op.op} outside [-1, 1]",
        "Clamp the argument to [-1 + eps, 1 - eps]: rounding takes it beyond.",
        {"in.absmax": given.stats["absmax"]},
    )


def _inverse_hyperbolic(op: OpRecord, origin: Origin) -> Cause | None:
    (given,) = floats(op)[:1] or (None,)
    if given is None or not given.stats.get("min", 1.0) < 1.0:
        return None
    return Cause(
        f"{op.op} below 1",
        "Clamp the argument to 1 + eps: rounding takes it below 1.",
        {"in.min": given.stats["min"]},
    )


def _weight_norm(op: OpRecord, origin: Origin) -> Cause | None:
    given = floats(op)
    if not given or any(fact.stats.get("absmax") != 0.0 for fact in given):
        return None
    return Cause(
        "weight_norm of a weight that is 0",
        "It divides by the weight's norm: start with small random numbers instead of zeros, or set the gain to 0 "
        "(parametrizations.weight.original0) and leave the direction random.",
        {"weight.absmax": 0.0},
    )


def _alignment(op: OpRecord, origin: Origin) -> Cause | None:
    """The loss is infinite where no alignment exists: fewer frames than labels (and blanks between equal ones)."""
    if len(op.inputs) < 4 or not any(count(fact.stats, "pos_inf") for fact in op.outputs):
        return None
    frames, labels = op.inputs[2], op.inputs[3]
    evidence: dict[str, float | str] = {
        "input_lengths.min": frames.stats.get("min", 0.0),
        "target_lengths.max": labels.stats.get("max", 0.0),
    }
    return Cause(
        "a target that is too long for its input in ctc_loss",
        "There is no alignment if a target has more labels (and repeats) than its input has frames: drop such samples, or use zero_infinity=True.",
        evidence,
        sure=evidence["target_lengths.max"] > evidence["input_lengths.min"],  # type: ignore[operator]
    )


def _attention(op: OpRecord, origin: Origin) -> Cause | None:
    for fact in op.inputs:
        if fact.dtype == "bool" or count(fact.stats, "neg_inf"):
            return Cause(
                f"{op.op} with a mask that leaves some query no key",
                "Let every query see at least one key, or drop empty samples.",
                {"mask.neg_inf": count(fact.stats, "neg_inf")},
                sure=False,
            )
    return None


_Explain = Callable[[OpRecord, Origin], Cause | None]
_FORWARD: dict[str, _Explain] = {
    **dict.fromkeys(("log", "log2", "log10", "log1p"), _log),
    **dict.fromkeys(("div", "reciprocal", "divide", "true_divide", "remainder", "fmod"), _divide),
    **dict.fromkeys(("sqrt", "rsqrt"), _root),
    **dict.fromkeys(("exp", "expm1", "exp2", "sinh", "cosh"), _exponential),
    **dict.fromkeys(("pow", "float_power"), _power),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "logsumexp"), _softmax),
    **dict.fromkeys(("cross_entropy", "nll_loss"), _loss_of_classes),
    **dict.fromkeys(("mean", "std", "var", "max", "min"), _average),
    **dict.fromkeys(("acos", "arccos", "asin", "arcsin", "atanh"), _inverse_cosine),
    **dict.fromkeys(("acosh", "arccosh"), _inverse_hyperbolic),
    **dict.fromkeys(("weight_norm", "norm_except_dim"), _weight_norm),
    "ctc_loss": _alignment,
    **dict.fromkeys(("scaled_dot_product_attention", "multi_head_attention_forward"), _attention),
}


def _overflow(op: OpRecord, origin: Origin) -> Cause:
    """Finite numbers that were too large for the type, or an op that we know nothing of."""
    out = op.outputs[0] if op.outputs else None
    dtype = out.dtype if out is not None else ""
    low = next((fact.dtype for fact in (*op.outputs, *op.inputs) if fact.dtype in ("float16", "bfloat16")), dtype)
    limit = LARGEST.get(low, LARGEST["float32"])
    sizes = [fact.stats.get("absmax", 0.0) for fact in floats(op)]
    most = max((size for size in sizes if size == size), default=0.0)
    evidence: dict[str, float | str] = {"in.absmax": most, "dtype": low, "limit": limit}
    if op.autocast:
        evidence["autocast"] = op.autocast
    if origin.masks:
        return Cause(
            f"{op.op} cannot handle the infinities in its input",
            "Keep -inf out of this op: mask with a large negative number instead.",
            {"in.neg_inf": sum(count(fact.stats, "neg_inf") for fact in origin.masks)},
            sure=False,
        )
    if low == "float16":
        return Cause(
            f"{op.op} overflows float16 (largest {limit:g})",
            "Compute this in bfloat16 or float32 (autocast dtype=torch.bfloat16, or "
            "autocast(enabled=False) around it), or normalize its input.",
            evidence,
        )
    if name_of(op) in INSERTING and not any(bad(fact.stats) for fact in op.inputs):
        return Cause(f"{op.op} of a value that is not finite", "The script itself inserts it here.", sure=False)
    growing = most > limit**0.25
    return Cause(
        f"{op.op} overflows {low}" if growing else op.op,
        "Its inputs have grown too large: look at what feeds this op, the learning rate, and normalization."
        if growing
        else "Look at the inputs of this op, given in the evidence.",
        evidence,
        growth=growing,
        sure=growing,
    )


# -- derivatives -----------------------------------------------------------------------------------


def backward_cause(op: OpRecord) -> Cause:
    """Why the derivative of this op is not finite although its output's gradient is."""
    name = name_of(op)
    given = floats(op)
    out = op.outputs[0].stats if op.outputs else {}
    if name in ("sqrt", "norm", "vector_norm", "cdist", "pairwise_distance", "dist", "std") and (
        count(out, "zero") or name in ("cdist", "std")
    ):
        return Cause(
            f"{op.op} at 0 has no finite derivative",
            "Add a small eps under the root ((x + 1e-12).sqrt()), or clamp before it: the value at 0 "
            "is fine, its gradient is not.",
            {"out.zero": count(out, "zero"), "out.min": out.get("min", 0.0)},
        )
    if name in ("div", "reciprocal"):
        cause = _divide(op, Origin(op))
        if cause is not None:
            return cause
    if name in ("log", "log2", "log10", "log1p", "rsqrt"):
        cause = _log(op, Origin(op)) if name != "rsqrt" else _root(op, Origin(op))
        if cause is not None:
            return cause
    if name in ("pow", "float_power") and given and count(given[0].stats, "zero"):
        exponent = op.arguments.get("exponent", op.arguments.get("1"))
        return Cause(
            f"0 to the power of {exponent} has no finite derivative",
            "Add a small eps to the base.",
            {"in.zero": count(given[0].stats, "zero")},
        )
    if name in ("acos", "arccos", "asin", "arcsin", "atanh"):
        return Cause(
            f"{op.op} at 1 or -1 has no finite derivative",
            "Clamp the argument to [-1 + eps, 1 - eps].",
            {"in.absmax": max((f.stats.get("absmax", 0.0) for f in given), default=0.0)},
        )
    if name in ("acosh", "arccosh") and any(fact.stats.get("min", 2.0) <= 1.0 for fact in given):
        return Cause(
            f"{op.op} at 1 has no finite derivative",
            "Clamp the argument to 1 + eps.",
            {"in.min": min(fact.stats["min"] for fact in given)},
        )
    if name in ("exp", "expm1", "softplus", "sinh", "cosh"):
        cause = _exponential(op, Origin(op))
        if cause is not None:
            return cause
    dtype = next(
        (fact.dtype for fact in (*op.outputs, *op.inputs) if fact.dtype == "float16"),
        op.outputs[0].dtype if op.outputs else "",
    )
    most = op.gradient.get("absmax", 0.0)
    if any(count(fact.stats, "nan", "pos_inf", "neg_inf") for fact in (*op.inputs, *op.outputs)):
        return Cause(
            f"{op.op} is differentiated at non-finite values",
            "Its value is masked later, but its derivative is not: remove the bad values before this op.",
            {"in.nonfinite": sum(count(fact.stats, "nan", "pos_inf", "neg_inf") for fact in op.inputs)},
        )
    if dtype == "float16":
        return Cause(
            f"the gradient of {op.op} overflows float16 (largest 65504)",
            "Use bfloat16, or torch.amp.GradScaler with a smaller scale.",
            {"grad.absmax": most},
        )
    return Cause(
        f"the derivative of {op.op} is not finite",
        "Look at the inputs of this op, given in the evidence.",
        {"grad.absmax": most, "in.absmax": max((fact.stats.get("absmax", 0.0) for fact in given), default=0.0)},
        growth=most > LARGEST["float32"] ** 0.25,
        sure=False,
    )
