"""The table of named conditions. Each is an expression of the language; docs/conditions.md is generated from here."""

from __future__ import annotations

from functools import lru_cache
from math import tanh

from sonde.watch import fit
from sonde.watch.expression import Expression
from sonde.watch.grammar import Argument, Build
from sonde.watch.named import Condition, Parameter, Values, limits, plain, statistics
from sonde.watch.nodes import Named

_TANH = tanh(8.8)
_SIGMOID = 9.205e-08  # sigmoid(-16.2)
_N = "observations"
_SAME = "norm == prev(norm) and absmean == prev(absmean) and mean == prev(mean)"
_STEADY = "lowest(norm, {n}) == norm and highest(norm, {n}) == norm and lowest(mean, {n}) == mean and highest(mean, {n}) == mean"
_GOING = "not (abs(loss) <= 1e-06)"  # a loss of 0 explains zero gradients; an unseen loss (NaN) does not


def _range(values: Values) -> list[tuple[fit.Fit, str]]:
    low, high, terms = values["low"], values["high"], list[str]()
    if (low is None) != (high is None) or (low is None) != (
        values["below"] is None and values["above"] is None
    ):
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


def _n(default: int, meaning: str = "how many observations before this one") -> Parameter:
    return Parameter("n", default, meaning, whole=True)


MINDINSIGHT = (
    Condition("tensor_overflow", "has NaN or Inf", plain((fit.ANY, "nan or inf")), aliases=("overflow", "nan_or_inf")),
    Condition("operator_overflow", "an op or module put out NaN or Inf", plain((fit.OUTPUT, "nan or inf"))),
    Condition(
        "all_zero", "at least this share is zero", plain((fit.ANY, "zeros >= {share}")),
        (Parameter("share", 1.0, "share of zeros"),), aliases=("tensor_all_zero",),
    ),
    Condition("too_large", "a statistic is above a limit", limits(fit.ANY, ">"), statistics(), ("tensor_too_large",)),
    Condition("too_small", "a statistic is below a limit", limits(fit.ANY, "<"), statistics(), ("tensor_too_small",)),
    Condition(
        "out_of_range", "too few or too many values inside [low, high], or max - min beyond a limit", _range,
        (
            Parameter("low", None, "lower end, inclusive"), Parameter("high", None, "upper end, inclusive"),
            Parameter("below", None, "hit when a smaller share lies inside"),
            Parameter("above", None, "hit when a larger share lies inside"),
            Parameter("spread_below", None, "hit when max - min is smaller"),
            Parameter("spread_above", None, "hit when max - min is larger"),
        ),
        ("tensor_range",), "The share inside is estimated from the digest; see inside() in the watch language.",
    ),
    Condition(
        "weight_initialization", "a weight matrix starts as zeros",
        plain((fit.MATRIX, "step == 0 and zeros >= {share}")), (Parameter("share", 1.0, "share of zeros"),),
        note="Vectors (biases, norms) may start as zeros.",
    ),
    Condition("weight_overflow", "a weight has NaN or Inf", plain((fit.WEIGHT, "nan or inf"), (fit.UPDATE, "nan or inf"))),
    Condition("weight_too_large", "a weight is above a limit", limits(fit.WEIGHT, ">"), statistics()),
    Condition("weight_too_small", "a weight is below a limit", limits(fit.WEIGHT, "<"), statistics()),
    Condition(
        "weight_unchanged", "the weight did not change", plain(
            (fit.UPDATE, "absmax == 0 or update_ratio <= {rtol}"), (fit.WEIGHT, _SAME),
        ),
        (Parameter("rtol", 1e-5, "change relative to the weight that still counts as none"),), ("weight_not_changed",),
        "At `update` the mean change is compared with the mean weight (MindInsight: every element). "
        "At `value` the digest (norm, absmean, mean) must equal the previous one bit for bit and rtol is not used.",
    ),
    Condition(
        "weight_change_too_large", "the update ratio is above a limit", plain((fit.UPDATE, "update_ratio > {ratio}")),
        (Parameter("ratio", 0.1, "limit of the update ratio"),),
    ),
    Condition(
        "weight_change_too_small", "the update ratio is below a limit", plain((fit.UPDATE, "update_ratio < {ratio}")),
        (Parameter("ratio", 1e-4, "limit of the update ratio"),),
    ),
    Condition(
        "activation_range", "nearly all of an activation lies where its slope is gone", _activation,
        (
            Parameter("kind", None, "treat any output as this activation", choices=("tanh", "sigmoid", "relu")),
            Parameter("share", 0.001, "share that still has a slope"),
        ),
        note="Shares come from inside(). For tanh and sigmoid up to float32 the upper limit is the same as "
        "\"exactly ±1\", which the histogram tells exactly on its sample; float64 needs |x| > 18 for that.",
    ),
    Condition("gradient_exploding", "a gradient has NaN or Inf", plain((fit.GRADIENT, "nan or inf"))),
    Condition("gradient_too_large", "a gradient is above a limit", limits(fit.GRADIENT, ">"), statistics()),
    Condition(
        "gradient_vanishing", "a gradient is below a limit", limits(fit.GRADIENT, "<"), statistics(1e-9),
        ("gradient_too_small",),
    ),
)  # fmt: skip

MORE = (
    Condition(
        "exploding", "far above its own past", plain(
            (fit.ANY, "absmax > {floor} and absmax > {factor} * med(absmax, {n}) and med(absmax, {n}) > 0")
        ),
        (Parameter("factor", 100, "times the median"), Parameter("floor", 1e3, "and at least this"), _n(20)),
    ),
    Condition(
        "vanishing", "a gradient stays near zero", plain(
            (fit.GRADIENT, "absmean < {absmean} and seen() >= {n} and highest(absmean, {n}) < {absmean}")
        ),
        (Parameter("absmean", 1e-9, "limit of the mean magnitude"), _n(3)),
    ),
    Condition(
        "unchanged", "the same as at the previous observation", plain((fit.ANY_UPDATE, "absmax == 0"), (fit.ANY, _SAME)),
        note="By its digest: norm, absmean and mean equal bit for bit; an update is unchanged when it is all zero.",
    ),
    Condition(
        "saturated", "the mean slope of the activation is nearly gone", plain(
            (fit.TANH_OUT, "1 - rms ** 2 < {slope}"),
            (fit.SIGMOID_OUT, "4 * (mean - mean ** 2 - std ** 2) < {slope}"),
            (fit.RECTIFIER_OUT, "zeros > 1 - {slope}"),
        ),
        (Parameter("slope", 0.01, "mean slope, as a share of the largest possible"),),
        note="The mean slope follows exactly from the digest: 1 - E[y²] for tanh, 4 E[y - y²] for sigmoid, "
        "the share above zero for ReLU.",
    ),
    Condition(
        "dead", "a rectifier puts out nothing but zeros, and goes on so", plain(
            (fit.RECTIFIER_OUT, "zeros >= {share} and seen() >= {n} and lowest(zeros, {n}) >= {share}")
        ),
        (Parameter("share", 1.0, "share of zeros"), _n(20)),
    ),
    Condition(
        "constant", "all values are the same", plain((fit.ANY, "count > 1 and finite == count and range == 0")),
        aliases=("constant_input",),
    ),
    Condition(
        "poor_initialization", "weights start far too small or far too large", plain(
            (fit.MATRIX, "step == 0 and (rms < {low} or rms > {high} or range == 0)")
        ),
        (Parameter("low", 1e-6, "smallest sound rms"), Parameter("high", 10, "largest sound rms")),
        note="All equal is poor as well: units that start the same stay the same.",
    ),
    Condition(
        "spike", "the loss jumps above all of its recent range", plain(
            (fit.LOSS, "seen() >= {n} and mean > highest(mean, {n}) + {factor} * (highest(mean, {n}) - lowest(mean, {n}))")
        ),
        (Parameter("factor", 3, "how many times the range of the last n"), _n(20)),
    ),
    Condition(
        "plateau", "the loss hardly moves", plain(
            (fit.LOSS, "seen() >= {n} and abs(trend(mean, {n})) * {n} < {tolerance} * abs(avg(mean, {n}))")
        ),
        (Parameter("tolerance", 1e-3, "relative change over the window"), _n(200)),
    ),
    Condition(
        "loss_not_decreasing", "the loss has no downward trend",
        plain((fit.LOSS, "seen() >= {n} and trend(mean, {n}) >= 0")), (_n(200),), ("not_decreasing",),
    ),
    Condition(
        "diverging", "the loss rises, and well above its recent lowest", plain(
            (fit.LOSS, "seen() >= {n} and trend(mean, {n}) > 0 and lowest(mean, 5) > med(mean, {n}) "
             "and mean > lowest(mean, {n}) + {factor} * abs(lowest(mean, {n}))")
        ),
        (Parameter("factor", 1, "rise, in units of the lowest"), _n(50)),
    ),
)  # fmt: skip

SURE = (
    Condition("loss_overflow", "the loss is NaN or Inf", plain((fit.LOSS, "nan or inf"))),
    Condition("output_nan", "a module put out NaN", plain((fit.MODULE_OUTPUT, "nan > 0"))),
    Condition(
        "output_overflow", "a module that never put out +Inf did", plain(
            (fit.MODULE_OUTPUT, "pos_inf > 0 and seen() >= {n} and highest(pos_inf, {n}) == 0")
        ),
        (_n(5),), note="-Inf is how attention masks are written, and +Inf from the start is meant; both are left out.",
    ),
    Condition(
        "gradient_overflow", "a gradient has NaN or Inf, or keeps having it under loss scaling", plain(
            (fit.GRADIENT, "nonfinite > 0 and (scaled == 0 or seen() >= {n} and lowest(nonfinite, {n}) > 0)")
        ),
        (_n(20),), note="A gradient scaler looks for its scale by overflowing: a few Inf in a row are healthy there.",
    ),
    Condition("buffer_nan", "a buffer without NaN got one", plain((fit.BUFFER, "nan > 0 and prev(nan) == 0"))),
    Condition(
        "gradient_runaway", "a weight's gradient stays far above its own past", plain(
            (fit.WEIGHT_GRADIENT, "norm > {floor} and seen() >= 20 and norm > {factor} * med(norm, {n}) "
             "and med(norm, {n}) > 0 and lowest(norm, 3) > 0.1 * {factor} * med(norm, {n})")
        ),
        (Parameter("factor", 1e3, "times the median"), Parameter("floor", 1e3, "and at least this"), _n(100)),
    ),
    Condition(
        "loss_runaway", "the loss stays far above its own past", plain(
            (fit.LOSS, "absmax > {floor} and seen() >= 20 and absmax > {factor} * med(absmax, {n}) "
             "and med(absmax, {n}) > 0 and lowest(absmax, 3) > 0.1 * {factor} * med(absmax, {n})")
        ),
        (Parameter("factor", 1e3, "times the median"), Parameter("floor", 1e4, "and at least this"), _n(100)),
    ),
    Condition(
        "loss_stuck", "the loss is the same, bit for bit, and not 0", plain(
            (fit.LOSS, f"absmax > 1e-06 and seen() >= {{n}} and mean == prev(mean) and {_STEADY}")
        ),
        (_n(100),),
    ),
    Condition(
        "weight_stuck", "a trainable weight in use does not change for long, while the loss is not 0", plain(
            (fit.WEIGHT, f"fed > 0 and {_GOING} and seen() >= {{n}} and norm == prev(norm) and {_STEADY}")
        ),
        (_n(100),),
    ),
    Condition(
        "gradient_stuck", "the gradient of a weight in use stays exactly zero, while the loss is not 0", plain(
            (fit.WEIGHT_GRADIENT, f"norm == 0 and nonfinite == 0 and fed > 0 and {_GOING} and seen() >= {{n}} "
             "and highest(norm, {n}) == 0")
        ),
        (_n(100),),
    ),
)  # fmt: skip

CONDITIONS = (*MINDINSIGHT, *MORE, *SURE)
_BY_NAME = {name: condition for condition in CONDITIONS for name in (condition.name, *condition.aliases)}


def lookup(name: str) -> Condition | None:
    """By name or alias; case does not matter."""
    return _BY_NAME.get(name.lower())


def _names(name: str) -> Build | None:
    condition = lookup(name)
    if condition is None:
        return None

    def build(given: list[Argument], named: dict[str, Argument]) -> Named:
        cases = condition.cases(condition.bind(given, named))
        return Named(condition.name, tuple((where, Expression.parse(text).tree) for where, text in cases))

    return build


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """A condition in the watch language, with named conditions; raises SyntaxProblem."""
    return Expression.parse(text, _names, _BY_NAME)
