"""Exceptions of values outside of what an op takes: the line that made the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, code, family, message

_DISTRIBUTION = re.compile(
    r"Expected parameter (\w+) .* of distribution (\w+).*?to satisfy the constraint (.*?), but", re.S
)
_ADVICE = {
    "GreaterThan(lower_bound=0.0)": "Make it positive where it is made: softplus(x) + 1e-4, or exp of a log-scale.",
    "GreaterThanEq(lower_bound=0.0)": "Make it positive where it is made: softplus or exp.",
    "Simplex()": "Give logits= instead of probs=, or take softmax where it is made.",
    "Interval(lower_bound=0.0, upper_bound=1.0)": "Give logits= instead of probs=, or take sigmoid where it is made.",
    "PositiveDefinite()": "Add jitter to its diagonal, or build it as L @ L.T of a triangle with a positive diagonal.",
}


@family("distribution-parameter")
def distribution_parameter(event: Event) -> Cause | None:
    """A distribution refuses a parameter: a scale that is negative or zero, or values that are not probabilities. A
    layer or an expression with unlimited range made the value, and nothing in between makes it positive (softplus,
    exp) or normalized (softmax, sigmoid). The finding follows the value through names, arguments and forwards to the
    line that makes it. NaN values began elsewhere and are not covered here.
    """
    told, found = _DISTRIBUTION.search(message(event)), event.get("domain")
    if told is None or not found or found.get("nonfinite"):
        return None
    name, kind, constraint = told[1], told[2], told[3]
    return Cause(
        title=f"`{name}` of {kind} must satisfy {constraint}, but {code(found.get('line'))} also gives other values"
        + _reach(found),
        advice=_ADVICE.get(constraint, "Limit it to that range where it is made."),
        line=found.get("line"),
        op=kind,
        evidence=_values(found),
        confidence=0.9,
    )


@family("sampling-of-raw-scores")
def sampling_of_raw_scores(event: Event) -> Cause | None:
    """multinomial takes weights that are not negative, bernoulli probabilities, poisson rates, normal a deviation.
    The argument has negative values: it is the raw output of a layer. The finding names the line that makes it, where
    the softmax (sigmoid, softplus) is missing.
    """
    found = event.get("domain")
    if not found or found.get("of") not in ("multinomial", "bernoulli", "poisson", "normal") or found.get("nonfinite"):
        return None
    if not found.get("negative") and not found.get("max", 0.0) > 1.0:
        return None
    cure = {"multinomial": "softmax(-1)", "bernoulli": "sigmoid"}.get(found["of"], "softplus (or exp)")
    return Cause(
        title=f"`{found['of']}` is given values{_reach(found)}: raw scores, which it does not take",
        advice=f"Apply {cure} to them where they are made.",
        line=found.get("line"),
        op=found["of"],
        evidence=_values(found),
        confidence=0.9,
    )


@family("matrix-not-positive-definite")
def matrix_not_positive_definite(event: Event) -> Cause | None:
    """Only a positive definite matrix has a Cholesky factor. In theory, kernel and covariance matrices are positive
    definite; in float32, those of nearby points are not, unless something is added to the diagonal. The finding names
    the line that makes the matrix.
    """
    found = event.get("domain")
    if not found or "positive-definite" not in message(event) or found.get("nonfinite"):
        return None
    return Cause(
        title=f"the matrix that {code(found.get('line'))} makes is not positive definite in its precision",
        advice="Add noise or jitter to its diagonal (K + 1e-4 * torch.eye(n)), or factor it in float64.",
        line=found.get("line"),
        op="cholesky",
        evidence=_values(found),
        confidence=0.85,
    )


@family("value-not-finite")
def value_not_finite(event: Event) -> Cause | None:
    """A call refuses NaN or Inf. The finding names the first variable on the way that holds them and was made from
    finite values and, if it is zero, what it is divided by.
    """
    found = event.get("nonfinite")
    if not found:
        return None
    what = "NaN" if found["nan"] else "Inf"
    zero = found.get("divisor")
    return Cause(
        title=f"`{found['name']}` holds {what}: "
        + (f"it is divided by `{zero}`, which is 0" if zero else f"it comes from `{found['code']}`"),
        advice=f"Skip the division if `{zero}` is 0 (greedy choice by argmax for a temperature of 0), or keep it above 0."
        if zero
        else f"Check the range of what goes into `{found['code']}`: log and sqrt need positive numbers, divisors must not be 0, exp needs small numbers.",
        line=found["line"],
        evidence={name: found[name] for name in ("name", "nan", "inf", "code")},
        confidence=0.85,
    )


def _reach(found: Mapping[str, Any]) -> str:
    return f" ({found['min']:.4g} to {found['max']:.4g})" if "max" in found else ""


def _values(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("argument", "shape", "min", "max", "negative", "code") if name in found}
