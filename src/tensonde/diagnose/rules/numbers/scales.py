"""Inputs whose scale in evaluation is another than in training."""

from __future__ import annotations

from math import exp, log
from statistics import fmean, median

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.facts import Spread
from tensonde.model.finding import Finding

SHIFT = 3.0
"""Means this many standard deviations apart are no other sample of the same data."""
RATIO = 5.0
FAR = 50.0
"""So many times is told whatever the training's inputs look like."""
FACTOR = 1.5
ALIKE = 0.2
"""By how much the features' factors may differ, as a part of their common one (in logarithms), and offsets, as a part of the spread."""
APART = 3.0
"""So many times the range of the means of the training's batches."""
SAMPLES = 32
LOOKS = 3


@rule("evaluated-on-another-scale", severity="error", phase="data")
def another_scale(case: Case) -> list[Finding]:
    """In eval mode, again and again, a model gets inputs whose features (or channels) are far from everything it was
    trained on: means many standard deviations away, and for most of them a spread several times larger or smaller,
    while the training's inputs are standardized. The normalization was applied to only one of the two, so the
    evaluation says nothing.

    If the training's inputs have no particular scale, the distance must be larger still. The mean has to differ: a
    wider range around the same mean is how a sampler starts, or what a plot looks like. Or the features differ by
    different factors, and only one side is standardized: no chosen range looks like that. Or all features (three or
    more) are those of the training times one factor plus one offset: other data would differ feature by feature.
    Single samples, single evaluations and other shapes are not reported.
    """
    found = []
    for root, rows in case.facts.scales.items():
        evaluated = [row for row in rows.evaluated if row.samples >= SAMPLES]
        trained = [row for row in rows.trained if row.samples > 1 and evaluated and _alike(row, evaluated[0])]
        evaluated = [row for row in evaluated if trained and _alike(row, trained[0])]
        if len(trained) < LOOKS or not evaluated or sum(row.samples for row in trained) < 2 * SAMPLES:
            continue
        one_factor = len(evaluated) >= LOOKS and _times_one_factor(trained, _pooled(evaluated))
        away = evaluated if one_factor else [row for row in evaluated if _away(trained, row)]
        again = len({row.step for row in away}) >= 2 and 4 * len(away) >= len(evaluated)
        if not again and not (len(away) >= LOOKS and 10 * len(away) >= 9 * len(evaluated)):
            continue
        row = away[0]
        means, spread = _usual(trained)
        found.append(
            case.finding(
                (
                    f"{root} is evaluated on inputs of a different scale than it is trained on: mean {_size(row.mean)} and "
                    f"spread {median(row.std):.3g} instead of {_size(means)} and {median(spread):.3g}"
                ),
                (
                    "Preprocess both in the same way: normalize the evaluation inputs with the mean and standard deviation of the training inputs."
                ),
                step=row.step,
                site=f"{root}:in",
                source=row.scaled or row.line,
                evidence={
                    "evaluated.mean": _short(row.mean),
                    "evaluated.std": _short(row.std),
                    "trained.mean": _short(means),
                    "trained.std": _short(spread),
                    "calls_in_eval_mode": len(evaluated),
                    "on_another_scale": len(away),
                },
                confidence=0.88,
            )
        )
    return found[:1]


def _alike(row: Spread, other: Spread) -> bool:
    """Of one layout: as many features, as many dimensions."""
    return len(row.mean) == len(other.mean) and len(row.shape) == len(other.shape)


def _usual(trained: list[Spread]) -> tuple[list[float], list[float]]:
    """By feature: the mean of the training's batches, and their largest spread, that between batches included."""
    means = [fmean(values) for values in zip(*(row.mean for row in trained), strict=True)]
    inside = [max(values) for values in zip(*(row.std for row in trained), strict=True)]
    between = [max(values) - min(values) for values in zip(*(row.mean for row in trained), strict=True)]
    return means, [max(pair) for pair in zip(inside, between, strict=True)]


def _away(trained: list[Spread], row: Spread) -> bool:
    means, spread = _usual(trained)
    told = [
        (abs(mean - usual) / width, max(std / width, width / std))
        for mean, std, usual, width in zip(row.mean, row.std, means, spread, strict=True)
        if std > 0 and width > 0
    ]
    if not told or 2 * len(told) < len(means):
        return False
    if _by_feature(trained, row):
        return True
    shifted = [shift for shift, _ in told if shift > SHIFT]
    apart = [pair for pair in told if pair[0] > SHIFT or pair[1] > RATIO]
    if 4 * len(shifted) < len(told) or 2 * len(apart) <= len(told):
        return False
    far = [pair for pair in told if max(pair) > FAR]
    return _standardised(means, spread) or _standardised(row.mean, row.std) or 2 * len(far) > len(told)


def _by_feature(trained: list[Spread], row: Spread) -> bool:
    """Only one of the two is standardised, and the features' spreads differ by factors that are far from each other, most of them large; or some of them large, and very far from the others."""
    means, spread = _usual(trained)
    ratios = [std / width for std, width in zip(row.std, spread, strict=True) if std > 0 and width > 0]
    if len(ratios) < 4 or 10 * len(ratios) < 9 * len(means):
        return False
    alone = _standardised(means, spread) != _standardised(row.mean, row.std)
    apart = [ratio for ratio in ratios if max(ratio, 1 / ratio) > RATIO]
    most = 2 * len(apart) > len(ratios)
    some = len(apart) >= 2 and 4 * len(apart) >= len(ratios) and max(ratios) > RATIO**2 * min(ratios)
    return alone and (most or some) and max(ratios) > RATIO * min(ratios)


def _times_one_factor(trained: list[Spread], row: Spread) -> bool:
    """Each feature is that of the training times one number plus another one, both the same for all: it was not normalised, or twice.
    The mean has to differ as well: noise that is added in training only makes spreads wider, around the same mean."""
    means, spread = [fmean(values) for values in zip(*(r.mean for r in trained), strict=True)], _within(trained)
    if len(means) < 3 or min(spread) <= 0 or min(row.std) <= 0:
        return False
    factors = [log(std / width) for std, width in zip(row.std, spread, strict=True)]
    factor = exp(fmean(factors))
    offsets = [mean - factor * usual for mean, usual in zip(row.mean, means, strict=True)]
    one = max(factors) - min(factors) < ALIKE * abs(log(factor)) and max(offsets) - min(offsets) < ALIKE * min(row.std)
    outside = [k for k in range(len(means)) if _outside(trained, k, row.mean[k])]
    return one and max(factor, 1 / factor) > FACTOR and 3 * len(outside) >= 2 * len(means)


def _pooled(rows: list[Spread]) -> Spread:
    means = [fmean(values) for values in zip(*(row.mean for row in rows), strict=True)]
    return Spread(mean=means, std=_within(rows))


def _within(trained: list[Spread]) -> list[float]:
    return [fmean(values) for values in zip(*(row.std for row in trained), strict=True)]


def _outside(trained: list[Spread], feature: int, mean: float) -> bool:
    """Far from the means of all batches of the training, by how these differ from each other."""
    seen = [row.mean[feature] for row in trained]
    return abs(mean - fmean(seen)) > APART * max(max(seen) - min(seen), 1e-6 * abs(mean))


@rule("evaluated-on-other-channels", severity="error", phase="data", unless=("evaluated-on-another-scale",))
def other_channels(case: Case) -> list[Finding]:
    """In evaluation, the features (or channels) of the inputs are those of the training in a different order: the
    mean and spread of each are far from its own in training, measured by how batches differ there, and match those of
    another one. One side is read as BGR and the other as RGB, or has its columns in a different order.
    """
    for root, rows in case.facts.scales.items():
        trained = [row for row in rows.trained if row.samples >= 8]
        evaluated = [row for row in rows.evaluated if row.samples >= SAMPLES and trained and _alike(row, trained[0])]
        if len(trained) < LOOKS or not evaluated or not all(_alike(row, trained[0]) for row in trained):
            continue
        orders = {_order(trained, row) for row in evaluated}
        if len(orders) != 1 or () in orders:
            continue
        order = next(iter(orders))
        row = evaluated[0]
        return [
            case.finding(
                f"{root} is evaluated on inputs whose {'channels' if len(row.shape) > 1 else 'columns'} are in a different order than in training: "
                + ", ".join(f"{k} is {other} of the training" for k, other in enumerate(order) if k != other),
                "Read and preprocess both in the same way (RGB or BGR, the same list of columns).",
                step=row.step,
                site=f"{root}:in",
                source=row.line,
                evidence={
                    "order": list(order),
                    "evaluated.mean": _short(row.mean),
                    "trained.mean": _short(_usual(trained)[0]),
                    "calls_in_eval_mode": len(evaluated),
                },
                confidence=0.9,
            )
        ]
    return []


def _order(trained: list[Spread], row: Spread) -> tuple[int, ...]:
    """Of each feature of the evaluation: which one of the training it is; empty where they are in order, or that cannot be told."""
    count = len(row.mean)
    widths = _within(trained)
    moved = [k for k in range(count) if _outside(trained, k, row.mean[k])]
    if not 2 <= len(moved) <= 8:
        return ()
    order = list(range(count))
    for k in moved:
        fits = [
            other
            for other in moved
            if not _outside(trained, other, row.mean[k]) and 0.8 < row.std[k] / max(widths[other], 1e-12) < 1.25
        ]
        if len(fits) != 1:
            return ()
        order[k] = fits[0]
    return tuple(order) if sorted(order) == list(range(count)) else ()


def _standardised(means: list[float], spread: list[float]) -> bool:
    """Nearly all features have about mean 0 and deviation 1."""
    usual = [abs(mean) < 0.5 and 0.5 < std < 2.0 for mean, std in zip(means, spread, strict=True)]
    return sum(usual) >= 0.8 * len(usual)


def _size(means: list[float]) -> str:
    return f"{max(means, key=abs):.3g}" if len(means) == 1 else f"up to {max(abs(mean) for mean in means):.3g}"


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values[:8]]
