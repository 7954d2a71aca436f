"""MindInsight's conditions, with its defaults."""

from __future__ import annotations

from math import tanh

from tensonde.watch import fit
from tensonde.watch.named import SAME, Condition, Parameter, Values, limits, plain, statistics

_TANH = tanh(8.8)
_SIGMOID = 9.205e-08  # sigmoid(-16.2)


def _range(values: Values) -> list[tuple[fit.Fit, str]]:
    low, high, terms = values["low"], values["high"], list[str]()
    if (low is None) != (high is None) or (low is None) != (values["below"] is None and values["above"] is None):
        raise ValueError("low, high, and below or above go together")
    for name, term in (("below", f"inside({low}, {high}) <"), ("above", f"inside({low}, {high}) >")):
        if values[name] is not None:
            terms.append(f"{term} {values[name]}")
    for name, term in (("spread_below", "range <"), ("spread_above", "range >")):
        if values[name] is not None:
            terms.append(f"{term} {values[name]}")
    if not terms:
        raise ValueError("give low, high and below or above, or spread_below or spread_above")
    return [(fit.ANY, " or ".join(terms))]


def _activation(values: Values) -> list[tuple[fit.Fit, str]]:
    share = values["share"]
    texts = {
        "tanh": (fit.TANH_OUT, f"inside({-_TANH!r}, {_TANH!r}) < {share}"),
        "sigmoid": (fit.SIGMOID_OUT, f"inside({_SIGMOID!r}, {1 - _SIGMOID!r}) < {share}"),
        "relu": (fit.RECTIFIER_OUT, f"inside(-1, 0) > 1 - {share}"),
    }
    kind = values["kind"]
    return [(fit.ANY_OUT, texts[str(kind)][1])] if kind is not None else list(texts.values())


MINDINSIGHT = (
    Condition(
        "tensor_overflow",
        "has NaN or Inf",
        plain((fit.ANY, "nan or inf")),
        aliases=("overflow", "nan_or_inf"),
    ),
    Condition("operator_overflow", "an op or module output NaN or Inf", plain((fit.OUTPUT, "nan or inf"))),
    Condition(
        "all_zero",
        "at least this share is zero",
        plain((fit.ANY, "zeros >= {share}")),
        (Parameter("share", 1.0, "share of zeros"),),
        aliases=("tensor_all_zero",),
    ),
    Condition("too_large", "a statistic is above a limit", limits(fit.ANY, ">"), statistics(), ("tensor_too_large",)),
    Condition("too_small", "a statistic is below a limit", limits(fit.ANY, "<"), statistics(), ("tensor_too_small",)),
    Condition(
        "out_of_range",
        "too few or too many values inside [low, high], or max - min beyond a limit",
        _range,
        (
            Parameter("low", None, "lower end, inclusive"),
            Parameter("high", None, "upper end, inclusive"),
            Parameter("below", None, "hit when a smaller share lies inside"),
            Parameter("above", None, "hit when a larger share lies inside"),
            Parameter("spread_below", None, "hit when max - min is smaller"),
            Parameter("spread_above", None, "hit when max - min is larger"),
        ),
        ("tensor_range",),
        "The share inside is estimated from the digest; see inside() in the watch language.",
    ),
    Condition(
        "weight_initialization",
        "a weight matrix starts as zeros",
        plain((fit.MATRIX, "step == 0 and zeros >= {share}")),
        (Parameter("share", 1.0, "share of zeros"),),
        note="Vectors (biases, norms) may start as zeros.",
    ),
    Condition(
        "weight_overflow",
        "a weight has NaN or Inf",
        plain((fit.WEIGHT, "nan or inf"), (fit.UPDATE, "nan or inf")),
    ),
    Condition("weight_too_large", "a weight is above a limit", limits(fit.WEIGHT, ">"), statistics()),
    Condition("weight_too_small", "a weight is below a limit", limits(fit.WEIGHT, "<"), statistics()),
    Condition(
        "weight_unchanged",
        "the weight did not change",
        plain(
            (fit.UPDATE, "absmax == 0 or update_ratio <= {rtol}"),
            (fit.WEIGHT, SAME),
        ),
        (Parameter("rtol", 1e-5, "change relative to the weight that still counts as none"),),
        ("weight_not_changed",),
        "At `update`, the mean change is compared with the mean weight (MindInsight: every element). At `value`, the digest (norm, absmean, mean) must equal the previous one exactly; rtol is not used.",
    ),
    Condition(
        "weight_change_too_large",
        "the update ratio is above a limit",
        plain((fit.UPDATE, "update_ratio > {ratio}")),
        (Parameter("ratio", 0.1, "limit of the update ratio"),),
    ),
    Condition(
        "weight_change_too_small",
        "the update ratio is below a limit",
        plain((fit.UPDATE, "update_ratio < {ratio}")),
        (Parameter("ratio", 1e-4, "limit of the update ratio"),),
    ),
    Condition(
        "activation_range",
        "nearly all of an activation lies where its slope is zero",
        _activation,
        (
            Parameter("kind", None, "treat any output as this activation", choices=("tanh", "sigmoid", "relu")),
            Parameter("share", 0.001, "share that still has a slope"),
        ),
        note='Shares come from inside(). For tanh and sigmoid up to float32, the upper limit is the same as "exactly ±1", which the histogram shows exactly on its sample; float64 needs |x| > 18 for that.',
    ),
    Condition("gradient_exploding", "a gradient has NaN or Inf", plain((fit.GRADIENT, "nan or inf"))),
    Condition("gradient_too_large", "a gradient is above a limit", limits(fit.GRADIENT, ">"), statistics()),
    Condition(
        "gradient_vanishing",
        "a gradient is below a limit",
        limits(fit.GRADIENT, "<"),
        statistics(1e-9),
        ("gradient_too_small",),
    ),
)
