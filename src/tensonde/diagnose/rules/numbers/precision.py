"""Numbers too coarse or too small: updates that round away, clipping in the wrong units, steps that are all skipped."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot, isclose, prod, sqrt

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import backward_line
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops

_LOW = ("bfloat16", "float16")


@rule("update-rounds-away", severity="error", phase="optimizer")
def underflow(case: Case) -> list[Finding]:
    """Most weights with a gradient are bit for bit the same after the step: the update is smaller than the weights'
    resolution.

    Counted on the weights themselves, around real steps with a learning rate above 0. In bfloat16, a weight has 8
    significant bits, so an update below 1/512 of it is lost; nothing accumulates.
    """
    total = unchanged = 0.0
    worst: tuple[float, str] = (0.0, "")
    low = looks = 0
    for name, fact in case.facts.parameters.items():
        steps = fact.steps
        if not steps or not steps.elements:
            continue
        share = steps.unchanged / steps.elements
        total += steps.elements
        unchanged += steps.unchanged
        looks = max(looks, steps.looks)
        low += fact.dtype in _LOW
        if len(fact.shape) >= 2 and share > worst[0]:
            worst = (share, name)
    if looks < 3 or not total or unchanged / total < (0.6 if low else 0.9) or not worst[1]:
        return []
    fact = case.facts.parameters[worst[1]]
    coarse = fact.dtype in _LOW
    optimizer = case.facts.optimizers[fact.optimizers[0]] if fact.optimizers else None
    module = case.module(fact.owner)
    share = unchanged / total
    source = (module.cast if coarse else None) or (optimizer.made if optimizer else None)
    return [
        case.finding(
            (
                f"{share:.0%} of the weights do not change in a step: updates are below the resolution of {fact.dtype}"
                if coarse
                else f"{share:.0%} of the weights do not change in a step: the update is too small for them"
            ),
            (
                "Keep the weights in float32 and compute in bfloat16 with torch.autocast, or use an optimizer "
                "with float32 master weights."
                if coarse
                else "Raise the learning rate; look at gradient scaling and clipping before the step."
            ),
            site=f"{worst[1]}:value",
            source=source,
            evidence={
                "unchanged_share": round(share, 4),
                "dtype": fact.dtype,
                "lr": optimizer.groups[0].get("lr") if optimizer else None,
                "steps_looked_at": looks,
            },
            confidence=0.93,
        )
    ]


@rule("gradients-still-scaled", severity="error", phase="optimizer")
def still_scaled(case: Case) -> list[Finding]:
    """Gradients are used while they still carry the loss scale. Either they are clipped before `unscale_`, so that
    the limit effectively is tens of thousands of times smaller and every step is clipped; or the optimizer is stepped
    directly, without the scaler.
    """
    return _clip_scaled(case) or _step_scaled(case)


def _clip_scaled(case: Case) -> list[Finding]:
    clip = case.facts.clipping
    looked = clip.looked_at
    if looked < 2 or clip.scaled < 0.8 * looked:
        return []
    scale, limit = clip.scale, clip.limit
    return [
        case.finding(
            f"{clip.kind} clips gradients that are still scaled by {scale:g}: unscale_ is missing",
            "Call scaler.unscale_(optimizer) after backward() and before clipping.",
            op=clip.kind,
            source=clip.line,
            evidence={
                "scale": scale,
                "limit": limit,
                "effective_limit": limit / scale if limit is not None and scale and scale > 0 else None,
                "norm_before": clip.median_norm,
                "calls": looked,
            },
            confidence=0.97,
        )
    ]


def _step_scaled(case: Case) -> list[Finding]:
    clip = case.facts.clipping
    if clip.steps_on_scaled_gradients < 2:
        return []
    return [
        case.finding(
            f"The optimizer steps on gradients that are still scaled by {clip.scale:g}",
            "Call scaler.step(optimizer) and scaler.update() instead of optimizer.step().",
            source=clip.step_line,
            evidence={"scale": clip.scale, "steps": clip.steps_on_scaled_gradients},
            confidence=0.95,
        )
    ]


@rule("clip-without-effect", severity="warning", phase="optimizer")
def clip_idle(case: Case) -> list[Finding]:
    """Gradients are clipped although no backward pass has run since the last optimizer step: before backward() or
    after step(), where clipping does not affect the update.
    """
    clip = case.facts.clipping
    looked = clip.looked_at
    if looked < 4 or clip.without_backward < 0.9 * looked:
        return []
    return [
        case.finding(
            f"{clip.kind} is called where it has no effect: not between backward() and step()",
            "Clip after backward() and before optimizer.step().",
            op=clip.kind,
            source=clip.line,
            evidence={"calls": looked, "without_backward_before": clip.without_backward},
            confidence=0.9,
        )
    ]


@rule("scaler-skips-all", severity="error", phase="optimizer")
def skips(case: Case) -> list[Finding]:
    """The gradient scaler skips (nearly) every optimizer step because gradients are never finite."""
    skipped = len(case.series("skipped"))
    if case.steps < 10 or skipped < 0.8 * case.steps:
        return []
    optimizer = next(iter(case.facts.optimizers), None)
    return [
        case.finding(
            f"The gradient scaler skips {skipped} of {case.steps} steps: gradients are never finite",
            (
                "Look for the first op with Inf or NaN in backward; a smaller init_scale helps only if the scale causes the overflow."
            ),
            step=None,
            source=optimizer.made if optimizer else None,
            evidence={"skipped": skipped, "steps": case.steps},
            confidence=0.85,
        )
    ]


@rule(
    "clip-limit-tiny", severity="warning", phase="optimizer", unless=("clip-without-effect", "gradients-still-scaled")
)
def clip_tiny(case: Case) -> list[Finding]:
    """Clipping, by a function or by the program's own lines, cuts gradients to less than a thousandth of their norm
    at nearly every step, and the optimizer (SGD) depends on that norm: training crawls. Adam and similar optimizers
    do not mind the scale, unless the remaining values are no larger than their eps.
    """
    clip = case.facts.clipping
    optimizer = next((o for o in case.facts.optimizers if o.steps), None)
    if optimizer is None or clip.scaled:
        return []
    count = sum(prod(fact.shape) for fact in case.facts.parameters.values() if fact.optimizers)
    left = _left_of_gradients(case)
    if clip.limit and clip.median_norm:
        limit, norm, share = clip.limit, clip.median_norm, clip.limit / sqrt(max(count, 1))
    elif left is not None:
        limit, norm, share = left[0], left[1], left[2]
    else:
        return []
    if norm < 1000 * limit:
        return []
    if optimizer.type != "SGD":
        eps = min((float(group.get("eps") or 0) for group in optimizer.groups), default=0.0)
        if not count or share > eps:
            return []
    kind = clip.kind or "The program"
    return [
        case.finding(
            f"{kind} cuts gradients of norm {norm:.3g} down to {limit:.3g}",
            "Clip near the usual size of the gradients, so that only outliers are cut.",
            op=clip.kind or None,
            source=clip.line or optimizer.rewritten or optimizer.step_line,
            evidence={"limit": clip.limit, "norm_before": norm, "norm_after": limit, "calls": clip.calls},
            confidence=0.75,
        )
    ]


def _left_of_gradients(case: Case) -> tuple[float, float, float] | None:
    """The norm of all gradients that the first step's optimizer was given, their norm after the backward pass, and the largest value left: where steps after
    that are given gradients of just that size, whatever the loss. None where they are given what was computed."""
    trace = case.first
    weights = [w for w in trace.weights if w.raw and w.gradient] if trace is not None else []
    given, raw = (hypot(*(getattr(w, part).get("norm", 0.0) for w in weights)) for part in ("gradient", "raw"))
    most = max((w.gradient.get("absmax", 0.0) for w in weights), default=0.0)
    if not 0 < 1000 * given <= raw or case.facts.clipping.scaled_losses:
        return None
    sums: dict[int, tuple[float, float]] = {}
    for weight in weights:
        for row in case.digests(f"{weight.name}:grad", ("step", "norm", "absmax")):
            norm, top = sums.get(row["step"], (0.0, 0.0))
            sums[row["step"]] = (hypot(norm, row["norm"]), max(top, row["absmax"]))
    cut = [1 for norm, top in sums.values() if isclose(norm, given, rel_tol=1e-3) or isclose(top, most, rel_tol=1e-6)]
    return (given, raw, most) if len(sums) >= 5 and len(cut) >= 0.8 * len(sums) else None


_GROWS = ops(Trait.SUMS_UP | Trait.MULTIPLIES | Trait.SQUARES)
_HALF_LIMIT = 65504


@rule("overflow-in-float16", severity="warning", phase="forward", unless=("nan-origin",))
def overflow_in_half(case: Case) -> list[Finding]:
    """A sum or product of finite float16 numbers exceeds 65504 in the first step and becomes Inf; what follows turns
    it back into ordinary numbers, such as 0 by a division, so the loss stays finite. -Inf is ignored, since masks use
    it.
    """
    trace = case.first
    for op in trace.ops if trace is not None else ():
        out = op.outputs[0] if op.outputs else None
        if out is None or op.op not in _GROWS or out.dtype != "float16" or not out.stats.get("pos_inf"):
            continue
        if not op.grad_enabled or not op.inputs or not all(_is_finite(fact.stats) for fact in op.inputs):
            continue
        count, all_of = int(out.stats["pos_inf"]), int(out.stats.get("count", 0))
        return [
            case.finding(
                f"{op.op} overflows in float16: {count} of {all_of} values are beyond {_HALF_LIMIT} and become Inf",
                "Compute this op in float32 (autocast dtype=torch.bfloat16, or autocast(enabled=False) around it), or divide before the sum.",
                step=trace.step if trace is not None else None,
                site=f"{op.site}:out",
                op=op.op,
                source=op.source,
                evidence={
                    "pos_inf": count,
                    "count": all_of,
                    "in.absmax": max(f.stats.get("absmax", 0.0) for f in op.inputs),
                },
                confidence=0.9,
            )
        ]
    return []


def _is_finite(stats: Mapping[str, float]) -> bool:
    return bool(stats) and not any(stats.get(kind) for kind in ("nan", "pos_inf", "neg_inf"))


@rule("float16-without-scaling", severity="error", phase="backward")
def unscaled(case: Case) -> list[Finding]:
    """The forward pass runs in float16 by autocast, no scaler is used, and a large part of the gradients is exactly
    zero: everything below 6e-8 is lost.
    """
    trace = case.first
    if trace is None or not any(op.autocast == "float16" for op in trace.ops):
        return []
    if any(scaler.enabled for scaler in case.facts.clipping.scalers):
        return []
    lost = []
    for name, fact in case.facts.parameters.items():
        if len(fact.shape) < 2 or not fact.optimizers:
            continue
        rows = case.digests(f"{name}:grad", ("count", "zero"))
        shares = sorted(row["zero"] / row["count"] for row in rows if row["count"])
        if shares and shares[len(shares) // 2] > 0.3:
            lost.append((name, shares[len(shares) // 2]))
    if not lost:
        return []
    first = next(op for op in trace.ops if op.autocast == "float16")
    return [
        case.finding(
            f"float16 without loss scaling: {lost[0][1]:.0%} of the gradient of {lost[0][0]} is lost to zero",
            "Use torch.amp.GradScaler around backward and step, or autocast to bfloat16.",
            site=f"{lost[0][0]}:grad",
            source=backward_line(case) or first.source,
            evidence={
                "zero_share": {name: round(share, 3) for name, share in lost[:10]},
                "scaler": None,
                "first_float16_op": str(first.source),
            },
            confidence=0.8,
        )
    ]
