"""Conditions that are sure enough to be on by default; see recommended.py for what healthy training does."""

from __future__ import annotations

from tensonde.watch import fit
from tensonde.watch.named import Condition, Parameter, Values, count, plain

_STEADY = "lowest({0}, {{n}}) == {0} and highest({0}, {{n}}) == {0}"
_SAME_LONG = f"{_STEADY.format('norm')} and {_STEADY.format('mean')}"
_GOING = "not (abs(loss) <= 1e-06)"  # a loss of 0 explains zero gradients; an unseen loss (NaN) does not
_MATRICES = (
    "A converged training may stop moving, so only the first n observations count. "
    "A loss may not depend on a bias at all (a WGAN critic's last one), so vectors are skipped."
)


def _running_away(values: Values) -> list[tuple[fit.Fit, str]]:
    factor, n = values["factor"], int(values["n"] or 0)
    past, before = f"prev(norm, {n})", f"prev(norm, {6 * n})"
    text = (
        f"norm > {factor} * {past} and count >= 16 and (norm / {past}) ** 5 > {past} / {before} and seen() >= {6 * n} "
        f"and step - prev(step, {6 * n}) <= {6 * n} and 3 * lowest(norm, 500) > {past} "
        f"and med(loss, {2 * n}) >= med(loss, {6 * n}) and highest(loss, {2 * n}) < 5 * med(loss, {6 * n})"
    )
    return [(fit.MATRIX, text)]


SURE = (
    Condition("loss_overflow", "the loss is NaN or Inf", plain((fit.LOSS, "nan or inf"))),
    Condition("output_nan", "a module output NaN", plain((fit.MODULE_OUTPUT, "nan > 0"))),
    Condition(
        "output_overflow",
        "a module output +Inf for the first time",
        plain((fit.MODULE_OUTPUT, "pos_inf > 0 and seen() >= {n} and highest(pos_inf, {n}) == 0")),
        (count(5),),
        note="Attention masks use -Inf, and +Inf from the start is intended; neither is reported.",
    ),
    Condition(
        "gradient_overflow",
        "a gradient has NaN or Inf, or keeps having it under loss scaling",
        plain(
            (fit.SETTLED_GRADIENT, "nonfinite > 0 and (scaled == 0 or seen() >= {n} and lowest(nonfinite, {n}) > 0)")
        ),
        (count(20),),
        note="A gradient scaler looks for its scale by overflowing: a few Inf in a row are healthy there.",
    ),
    Condition("buffer_nan", "a buffer without NaN got one", plain((fit.BUFFER, "nan > 0 and prev(nan) == 0"))),
    Condition(
        "gradient_runaway",
        "a weight's gradient stays far above its own past",
        plain(
            (
                fit.WEIGHT_GRADIENT,
                "norm > {floor} and seen() >= 20 and norm > {factor} * med(norm, {n}) "
                "and med(norm, {n}) > 0 and lowest(norm, 3) > 0.1 * {factor} * med(norm, {n})",
            )
        ),
        (
            Parameter("factor", 1e3, "times the median"),
            Parameter("floor", 1e3, "and at least this"),
            count(100),
        ),
    ),
    Condition(
        "loss_runaway",
        "the loss stays far above its own past",
        plain(
            (
                fit.LOSS,
                "absmax > {floor} and seen() >= 20 and absmax > {factor} * med(absmax, {n}) "
                "and med(absmax, {n}) > 0 and lowest(absmax, 3) > 0.1 * {factor} * med(absmax, {n})",
            )
        ),
        (
            Parameter("factor", 1e3, "times the median"),
            Parameter("floor", 1e4, "and at least this"),
            count(100),
        ),
    ),
    Condition(
        "weight_runaway",
        "a weight grows fast and ever faster while the loss no longer falls: the loss often diverges soon",
        _running_away,
        (Parameter("factor", 1.12, "growth of the norm over n steps"), count(10)),
        note="Faster than its average over the 5 n steps before. Silent if the weight was a third as large or less within the last 500 steps, like one that starts near zero; after a loss that jumped to five times its median, as when the data change; and where steps were not observed.",
    ),
    Condition(
        "loss_stuck",
        "the loss has been the same, bit for bit, from the start, and is not 0",
        plain((fit.LOSS, f"absmax > 1e-06 and seen() == {{n}} and mean == prev(mean) and {_SAME_LONG}")),
        (count(100),),
    ),
    Condition(
        "weight_stuck",
        "a trainable weight in use has not changed from the start, while the loss is not 0",
        plain((fit.MATRIX, f"fed > 0 and {_GOING} and seen() == {{n}} and norm == prev(norm) and {_SAME_LONG}")),
        (count(100),),
        note=_MATRICES,
    ),
    Condition(
        "gradient_stuck",
        "the gradient of a weight in use has been zero from the start, while the loss is not 0",
        plain(
            (
                fit.MATRIX_GRADIENT,
                f"norm == 0 and nonfinite == 0 and fed > 0 and {_GOING} and seen() == {{n}} "
                "and highest(norm, {n}) == 0",
            )
        ),
        (count(100),),
        note=_MATRICES,
    ),
)
