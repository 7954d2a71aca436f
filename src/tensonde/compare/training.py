"""What a step does to the parameters, in both runs: their values before it, their gradients, their updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensonde.compare.distance import AMPLIFICATION, APART, Distance, Stats, distance, epsilon, rms, sketch
from tensonde.compare.pairing import Pairing
from tensonde.model.trace import Trace, WeightRecord

_DRAW = 0.15
_PLACED = 600
"""In the first step MindSpore's Adam has 1 / sqrt(1 - 0.999) = 32 times PyTorch's epsilon beside a gradient. Elements count from a tenth of
the typical gradient on (`Twin.faint`), so none is off by more than 320 epsilon / typical; averages of three steps may be 1.7 times smaller."""


@dataclass(frozen=True)
class Part:
    """A parameter that differs."""

    name: str
    other: str
    found: Distance
    a: Stats
    b: Stats
    frozen: bool = False
    """Only one run trains it."""


def pairs(a: Trace, b: Trace, pairing: Pairing) -> list[tuple[WeightRecord, WeightRecord]]:
    theirs = {weight.name: weight for weight in b.weights}
    return [
        (weight, theirs[pairing.weights[weight.name]])
        for weight in a.weights
        if pairing.weights.get(weight.name) in theirs
    ]


def initial(a: Trace, b: Trace, pairing: Pairing) -> list[Part]:
    """Parameters that do not begin with the same values."""
    found = []
    for mine, theirs in pairs(a, b, pairing):
        if mine.before and theirs.before:
            apart = distance(mine.before, theirs.before)
            if apart.relative > 8 * epsilon(mine.dtype, theirs.dtype):
                found.append(Part(mine.name, theirs.name, apart, mine.before, theirs.before))
    return found


def only_drawn(part: Part, slack: float = 1.0) -> bool:
    """Other random numbers of one distribution, as far as the statistics tell. `slack`: by how much chance is given more room."""
    a, b = part.a, part.b
    if not a["std"] or not b["std"] or a["zero"] != b["zero"]:
        return False
    noise = slack * 4 / math.sqrt(2 * a["count"])
    same_std = abs(math.log(a["std"] / b["std"])) < max(_DRAW if a["count"] < 200 else 0.05, noise)
    same_mean = abs(a["mean"] - b["mean"]) < 6 * max(a["std"], b["std"]) / math.sqrt(a["count"])
    shape_a, shape_b = a["absmean"] / a["std"], b["absmean"] / b["std"]
    same_shape = abs(shape_a - shape_b) < max(0.03, slack * 4 * 0.6 / math.sqrt(a["count"]))
    return same_std and same_mean and same_shape


def drift(a: Trace, b: Trace, pairing: Pairing) -> dict[str, float]:
    """How far each parameter is from its partner when the step begins."""
    return {
        mine.name: distance(mine.before, theirs.before).relative
        for mine, theirs in pairs(a, b, pairing)
        if mine.before and theirs.before
    }


def gradients(a: Trace, b: Trace, pairing: Pairing, field: str, noise: float) -> list[Part]:
    """Gradients that differ by more than rounding; `field`: "raw", as the backward pass left them, or "gradient".

    Some gradients are zero but for rounding (a bias before a normalisation); these are held against all the others.
    """
    found = []
    matched = pairs(a, b, pairing)
    whole = max([0.0, *(getattr(weight, field).get("norm", 0.0) for both in matched for weight in both)])
    for mine, theirs in matched:
        one, other = getattr(mine, field), getattr(theirs, field)
        unit = epsilon(mine.dtype, theirs.dtype)
        negligible = 64 * unit * whole
        if not one and not other:
            continue
        if not one or not other:
            present = one or other
            if present["norm"] > negligible:
                frozen = mine.trainable != theirs.trainable
                found.append(Part(mine.name, theirs.name, APART, one, other, frozen))
            continue
        apart = distance(one, other)
        if apart.relative > 80 * unit + AMPLIFICATION * noise and apart.absolute > negligible + whole * noise:
            found.append(Part(mine.name, theirs.name, apart, one, other))
    return found


def updates(a: Trace, b: Trace, pairing: Pairing, noise: Mapping[str, float], adam: float = 0.0) -> list[Part]:
    """Updates that differ though gradients and values before them agree. `noise`: what updates have differed by before.

    An adaptive optimizer makes a full-sized step of a gradient that is nothing but rounding, and turns it with its sign:
    where gradients differ by a share d, updates may by the square root of it. An update that is nothing beside the others,
    of a gradient that is nothing beside the others, tells nothing. `adam`: an epsilon that the two add in another place, which counts the
    more the smaller a gradient is (see `dialect.py`).
    """
    found = []
    matched = pairs(a, b, pairing)
    steps = [step for both in matched for weight in both if (step := moved(weight)) is not None]
    largest = max([0.0, *map(_length, steps)])
    whole = max([0.0, *(weight.gradient.get("norm", 0.0) for both in matched for weight in both)])
    for mine, theirs in matched:
        if not (mine.before and mine.after and theirs.before and theirs.after):
            continue
        step_a, step_b = moved(mine), moved(theirs)
        if step_a is None or step_b is None:
            continue
        unit = epsilon(mine.dtype, theirs.dtype)
        given = distance(mine.gradient, theirs.gradient) if mine.gradient and theirs.gradient else None
        tiny = max(mine.gradient.get("norm", 0.0), theirs.gradient.get("norm", 0.0)) <= 64 * unit * whole
        spread = given.relative if given is not None else 0.0
        size_a, size_b = _length(step_a), _length(step_b)
        size = max(size_a, size_b)
        if tiny and given is not None and (spread > 0 or size <= 64 * unit * largest):
            continue  # rounding, whether the optimizer makes a step of it that is as large as any other or not
        apart = _length(step_a - step_b)
        rounding = unit * max(mine.before["norm"], theirs.before["norm"])
        allowed = (1e-5 * (unit / 1.2e-7) + 10 * spread + 3 * math.sqrt(spread) + 3 * noise.get(mine.name, 0.0)) * size
        typical = rms(mine.gradient)
        allowed += min(1.0, _PLACED * adam / typical) * size if adam and typical else 0.0
        if apart > allowed + rounding and size > 0:
            cosine = (size_a**2 + size_b**2 - apart**2) / (2 * size_a * size_b) if size_a and size_b else math.nan
            shift = max(
                abs(mine.after[f] - mine.before[f] - theirs.after[f] + theirs.before[f]) for f in ("min", "max")
            )
            where = Distance(apart / size, apart, max(-1.0, min(1.0, cosine)), shift, True)
            found.append(Part(mine.name, theirs.name, where, {"norm": size_a}, {"norm": size_b}))
    return found


def common_ratio(parts: list[Part]) -> float | None:
    """B's updates by A's, where that is one number for all parameters, and they have the same direction."""
    ratios = [part.b["norm"] / part.a["norm"] for part in parts if part.a["norm"] and part.b["norm"]]
    if len(ratios) < len(parts) or any(not part.found.cosine > 0.999 for part in parts):
        return None
    middle = sorted(ratios)[len(ratios) // 2]
    return middle if all(abs(ratio - middle) <= 0.01 * middle for ratio in ratios) else None


def update_noise(a: Trace, b: Trace, pairing: Pairing) -> dict[str, float]:
    found = {}
    for mine, theirs in pairs(a, b, pairing):
        if mine.before and mine.after and theirs.before and theirs.after:
            one, other = moved(mine), moved(theirs)
            if one is not None and other is not None:
                found[mine.name] = _length(one - other) / max(_length(one), _length(other), 1e-300)
    return found


def moved(weight: WeightRecord) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """The sketch of what the optimizer did to it: sketches are linear."""
    if weight.moved:
        return sketch(weight.moved)
    new, old = sketch(weight.after), sketch(weight.before)
    return None if new is None or old is None else new - old


def _length(vector: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return math.sqrt(float(np.mean(vector**2)))
