"""Inputs whose scale in evaluation is another than in training."""

from __future__ import annotations

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
SAMPLES = 32
LOOKS = 3


@rule("evaluated-on-another-scale", severity="error", phase="data")
def another_scale(case: Case) -> list[Finding]:
    """In eval mode, again and again, a model is given inputs whose features (or channels) lie far from all that it was
    trained on: means many standard deviations away, and a spread several times larger or smaller for most of them, while the
    training's inputs are standardised. The normalisation was applied to one of the two only, so the evaluation says nothing.

    Where the training's inputs are of no particular scale, the distance must be larger still. The mean has to differ: a
    wider range around the same one is how a sampler starts, or what a plot looks like. Or the features differ by factors of their own, and
    only one side is standardised: no range that somebody chose looks like that. Single samples, single looks and other
    shapes are not meant.
    """
    found = []
    for root, rows in case.facts.scales.items():
        evaluated = [row for row in rows.evaluated if row.samples >= SAMPLES]
        trained = [row for row in rows.trained if row.samples > 1 and evaluated and _alike(row, evaluated[0])]
        evaluated = [row for row in evaluated if trained and _alike(row, trained[0])]
        if len(trained) < LOOKS or not evaluated or sum(row.samples for row in trained) < 2 * SAMPLES:
            continue
        away = [row for row in evaluated if _away(trained, row)]
        again = len({row.step for row in away}) >= 2 and 4 * len(away) >= len(evaluated)
        if not again and not (len(away) >= LOOKS and 10 * len(away) >= 9 * len(evaluated)):
            continue
        row = away[0]
        means, spread = _usual(trained)
        found.append(
            case.finding(
                (
                    f"{root} is evaluated on inputs of another scale than it is trained on: mean {_size(row.mean)} and "
                    f"spread {median(row.std):.3g} instead of {_size(means)} and {median(spread):.3g}"
                ),
                (
                    "Prepare both in the same way: normalise the evaluation's inputs with mean and deviation of the "
                    "training's."
                ),
                step=row.step,
                site=f"{root}:in",
                source=row.line,
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
    """Only one of the two is standardised, and the features' spreads differ by factors that are far from each other, most of them large."""
    means, spread = _usual(trained)
    ratios = [std / width for std, width in zip(row.std, spread, strict=True) if std > 0 and width > 0]
    if len(ratios) < 4 or 10 * len(ratios) < 9 * len(means):
        return False
    alone = _standardised(means, spread) != _standardised(row.mean, row.std)
    apart = [ratio for ratio in ratios if max(ratio, 1 / ratio) > RATIO]
    return alone and 2 * len(apart) > len(ratios) and max(ratios) > RATIO * min(ratios)


def _standardised(means: list[float], spread: list[float]) -> bool:
    """Nearly all features have about mean 0 and deviation 1."""
    usual = [abs(mean) < 0.5 and 0.5 < std < 2.0 for mean, std in zip(means, spread, strict=True)]
    return sum(usual) >= 0.8 * len(usual)


def _size(means: list[float]) -> str:
    return f"{max(means, key=abs):.3g}" if len(means) == 1 else f"up to {max(abs(mean) for mean in means):.3g}"


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values[:8]]
