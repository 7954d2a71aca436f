"""Conditions for any network: activations, initialisation, the course of the loss."""

from __future__ import annotations

from tensonde.watch import fit
from tensonde.watch.named import SAME, Condition, Parameter, count, plain

MORE = (
    Condition(
        "exploding",
        "far above its own past",
        plain((fit.ANY, "absmax > {floor} and absmax > {factor} * med(absmax, {n}) and med(absmax, {n}) > 0")),
        (
            Parameter("factor", 100, "times the median"),
            Parameter("floor", 1e3, "and at least this"),
            count(20),
        ),
    ),
    Condition(
        "vanishing",
        "a gradient stays near zero",
        plain((fit.GRADIENT, "absmean < {absmean} and seen() >= {n} and highest(absmean, {n}) < {absmean}")),
        (Parameter("absmean", 1e-9, "limit of the mean magnitude"), count(3)),
    ),
    Condition(
        "unchanged",
        "the same as at the previous observation",
        plain((fit.ANY_UPDATE, "absmax == 0"), (fit.ANY, SAME)),
        note="Judged by the digest: norm, absmean and mean are equal bit for bit; an update is all zero.",
    ),
    Condition(
        "saturated",
        "the mean slope of the activation is nearly gone",
        plain(
            (fit.TANH_OUT, "1 - rms ** 2 < {slope}"),
            (fit.SIGMOID_OUT, "4 * (mean - mean ** 2 - std ** 2) < {slope}"),
            (fit.RECTIFIER_OUT, "zeros > 1 - {slope}"),
        ),
        (Parameter("slope", 0.01, "mean slope, as a share of the largest possible"),),
        note="The mean slope follows exactly from the digest: 1 - E[y²] for tanh, 4 E[y - y²] for sigmoid, "
        "the share above zero for ReLU.",
    ),
    Condition(
        "dead",
        "a rectifier outputs only zeros, and continues to",
        plain((fit.RECTIFIER_OUT, "zeros >= {share} and seen() >= {n} and lowest(zeros, {n}) >= {share}")),
        (Parameter("share", 1.0, "share of zeros"), count(20)),
    ),
    Condition(
        "constant",
        "all values are the same",
        plain((fit.ANY, "count > 1 and finite == count and range == 0")),
        aliases=("constant_input",),
    ),
    Condition(
        "poor_initialization",
        "weights start far too small or far too large",
        plain((fit.MATRIX, "step == 0 and (rms < {low} or rms > {high} or range == 0)")),
        (Parameter("low", 1e-6, "smallest sound rms"), Parameter("high", 10, "largest sound rms")),
        note="Equal weights are poor as well: units that start the same stay the same.",
    ),
    Condition(
        "spike",
        "the loss jumps above all of its recent range",
        plain(
            (
                fit.LOSS,
                "seen() >= {n} and mean > highest(mean, {n}) + {factor} * (highest(mean, {n}) - lowest(mean, {n}))",
            )
        ),
        (Parameter("factor", 3, "how many times the range of the last n"), count(20)),
    ),
    Condition(
        "plateau",
        "the loss hardly moves",
        plain((fit.LOSS, "seen() >= {n} and abs(trend(mean, {n})) * {n} < {tolerance} * abs(avg(mean, {n}))")),
        (Parameter("tolerance", 1e-3, "relative change over the window"), count(200)),
    ),
    Condition(
        "loss_not_decreasing",
        "the loss has no downward trend",
        plain((fit.LOSS, "seen() >= {n} and trend(mean, {n}) >= 0")),
        (count(200),),
        ("not_decreasing",),
    ),
    Condition(
        "diverging",
        "the loss rises, and well above its recent lowest",
        plain(
            (
                fit.LOSS,
                "seen() >= {n} and trend(mean, {n}) > 0 and lowest(mean, 5) > med(mean, {n}) "
                "and mean > lowest(mean, {n}) + {factor} * abs(lowest(mean, {n}))",
            )
        ),
        (Parameter("factor", 1, "rise, in units of the lowest"), count(50)),
    ),
)
