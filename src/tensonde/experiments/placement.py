"""Do maps that are compared with (masks, label maps) lie where the images are?

An image and its map belong together pixel by pixel: where the map says something, the image is brighter, darker or of another colour. Both are laid upon each other as they are, mirrored,
turned, exchanged (rows for columns), and shifted. How well they agree is measured by how well images agree with the maps of other samples. Healthy: as they are, or nowhere, since not
everything that a map tells is a matter of brightness. Where many samples agree well in another way only, the image or the map was turned, mirrored or cut on its way, and the other was not.

A map of things that are symmetric agrees in both ways, and is not meant. Nor is a map that lies elsewhere and is a picture itself, with as many shades as the image has, or as few: the next frame, or
what the other eye sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tensonde.experiments.anatomy import Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.leak import target_line
from tensonde.experiments.step import Array, NotPossible, Step, Value
from tensonde.model.site import SourceLine

FEWEST, SMALLEST, LARGEST = 4, 8, 64
"""Samples; pixels of a side, beyond which every so many-th is taken."""
WELL, NOT = 2.5, 1.0
"""Deviations from what other samples' maps give."""
SAMPLES, MANY, PART = 24, 8, 0.15
"""Samples of which something is said; those that agree in another way, and their part of all."""
ALL, NONE = 8.0, 2.0
"""Deviations of all samples of a batch together: a batch may be turned as a whole."""
OTHERS = 3
"""Maps of other samples that each image is laid upon."""
CHANNELS = 3
SHADES = 16
"""Values beyond which a map has no classes."""
SHIFTED, TOGETHER = "shifted", "shifted, all samples of a batch alike"
WAYS: dict[str, Callable[[Array], Array]] = {
    "as it is": lambda maps: maps,
    "mirrored left to right": lambda maps: maps[..., ::-1],
    "upside down": lambda maps: maps[..., ::-1, :],
    "turned half round": lambda maps: maps[..., ::-1, ::-1],
    "transposed": lambda maps: np.swapaxes(maps, -1, -2),
}


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    value, target = _pair(step, anatomy)
    image, there = step.array(value.number), step.array(target.number)
    found = _agreement(_maps(image), _maps(there))
    if found is None:
        raise NotPossible("images and maps do not differ from sample to sample")
    if _shaded(image) == _shaded(there):
        for way in (SHIFTED, TOGETHER):
            found.pop(way, None)
    memory["turned"] = _turned(step, anatomy, value, target) or memory.get("turned")
    gathered: list[dict[str, Array]] = memory.setdefault("samples", [])
    gathered.append(found)
    together = {way: np.concatenate([part[way] for part in gathered if way in part]) for way in found}
    own = together["as it is"]
    if len(own) < SAMPLES or any(len(z) != len(own) for z in together.values()):
        raise NotPossible("too few samples were seen so far")
    counts = {way: _amiss(gathered, way) for way in together if way != "as it is"}
    way = max(counts, key=lambda way: (counts[way], way not in (SHIFTED, TOGETHER)))
    numbers = {"samples": float(len(own)), "as they are": float((own > WELL).sum()), "amiss": float(counts[way])}
    if counts[way] >= max(MANY, PART * len(own)):
        yield Answer(
            False,
            f"{counts[way]} of {len(own)} samples agree with their targets only when one of them is {way}",
            numbers,
            names=(target.name,),
            source=(_cut(step, anatomy, value, target) if way in (SHIFTED, TOGETHER) else memory.get("turned"))
            or memory.get("turned")
            or _cut(step, anatomy, value, target, loose=False)
            or target_line(step, anatomy, target.number)
            or step.loss_source,
            part="misplaced",
        )
        return
    yield Answer(True if (own > WELL).any() else None, "images and targets are aligned", numbers)


def _amiss(gathered: list[dict[str, Array]], way: str) -> int:
    """Samples that agree in this way only: one by one, or all of a batch together."""
    count = 0
    for part in gathered:
        own, other = part["as it is"], part[way]
        whole = other.sum() > ALL * np.sqrt(len(own)) and own.sum() < NONE * np.sqrt(len(own))
        if way == TOGETHER and not whole:
            continue
        count += len(own) if whole else int(((other > WELL) & (own < NOT)).sum())
    return count


def _pair(step: Step, anatomy: Anatomy) -> tuple[Value, Value]:
    for value in anatomy.inputs:
        if value.kind != "float" or len(value.shape) != 4 or value.shape[0] < FEWEST or min(value.shape[2:]) < SMALLEST:
            continue
        behind = anatomy.ancestors([value.number])
        maps = [
            target
            for target in step.values
            if len(target.shape) in (3, 4)
            and target.shape[0] == value.shape[0]
            and target.shape[-2:] == value.shape[-2:]
            and target.kind in ("int", "float", "bool")
            and not target.into_model
            and target.number in anatomy.before_loss
            and target.number not in anatomy.computed
            and target.number not in behind
            and value.number not in anatomy.ancestors([target.number])
            and _is_compared(anatomy, target.number)
        ]
        if maps:
            return value, maps[-1]
    raise NotPossible("no image is compared with a map of its size")


def _is_compared(anatomy: Anatomy, value: int) -> bool:
    """As it is: what something else is still made of, by a flip or a cut, is not what the loss sees."""
    users = anatomy.users.get(value, [])
    return any(any(n in anatomy.trained and n not in anatomy.weights for n in op.inputs) for op in users)


def _maps(array: Array) -> Array:
    """Channels of a few samples, or the most frequent classes, each a map of its own."""
    if _shaded(array):
        maps = array if array.ndim == 4 else array[:, None]
    else:
        whole = array[:, 0] if array.ndim == 4 and array.shape[1] == 1 else array
        if whole.ndim == 4:
            maps = whole
        else:
            kinds, counts = np.unique(whole, return_counts=True)
            chosen = kinds[np.argsort(-counts)][1 : CHANNELS + 1] if len(kinds) > 1 else kinds[:1]
            maps = np.stack([whole == kind for kind in chosen], 1)
    every = -(-max(maps.shape[-2:]) // LARGEST)
    return np.asarray(maps[:, :CHANNELS, ::every, ::every], dtype=np.float64)


def _shaded(array: Array) -> bool:
    """Shades, not classes."""
    return array.dtype.kind == "f" and len(np.unique(array[:4])) > SHADES


def _agreement(images: Array, maps: Array) -> dict[str, Array] | None:
    """By way: of each sample, how many deviations its image agrees better with its own map than with those of others. The channel and the class that tell most."""
    best: tuple[float, dict[str, Array]] | None = None
    for channel in range(images.shape[1]):
        for kind in range(maps.shape[1]):
            image, there = _unit(images[:, channel]), _unit(maps[:, kind])
            told = (np.abs(image).sum((1, 2)) > 0) & (np.abs(there).sum((1, 2)) > 0)
            image, there = image[told], there[told]
            if len(image) < FEWEST:
                continue
            for sign in (1.0, -1.0):
                found = {
                    way: z
                    for way in [*WAYS, SHIFTED, TOGETHER]
                    if (z := _deviations(image, sign * there, way)) is not None
                }
                strength = float(np.max(list(found.values()), axis=0).sum()) if "as it is" in found else 0.0
                if found and (best is None or strength > best[0]):
                    best = strength, found
    return None if best is None else best[1]


def _unit(maps: Array) -> Array:
    flat = maps - maps.mean((1, 2), keepdims=True)
    size = np.sqrt(np.square(flat).sum((1, 2), keepdims=True))
    return np.where(size > 1e-9, flat / np.maximum(size, 1e-9), 0.0)


def _deviations(image: Array, there: Array, way: str) -> Array | None:
    if way == TOGETHER:
        return _alike(image, there)
    own = _products(image, there, way)
    if own is None:
        return None
    others = [_products(image, np.roll(there, k, axis=0), way) for k in range(1, min(OTHERS, len(image) - 1) + 1)]
    chance = np.concatenate([other for other in others if other is not None])
    return np.asarray((own - chance.mean()) / max(float(chance.std()), 0.02))


def _alike(image: Array, there: Array) -> Array:
    """At the one place where the whole batch agrees best: a batch that is cut at once is shifted as a whole. Of other samples' maps, the same place is looked at."""
    across = _across(image, there)
    best = int(across.sum(0).argmax())
    others = [_across(image, np.roll(there, k, axis=0))[:, best] for k in range(1, min(OTHERS, len(image) - 1) + 1)]
    chance = np.concatenate(others)
    return np.asarray((across[:, best] - chance.mean()) / max(float(chance.std()), 0.02))


def _across(image: Array, there: Array) -> Array:
    """Of each sample: how well the two agree, for each way to shift one of them."""
    found = np.fft.irfft2(np.fft.rfft2(image) * np.conj(np.fft.rfft2(there)), s=image.shape[1:])
    return np.asarray(found.reshape(len(image), -1))


def _products(image: Array, there: Array, way: str) -> Array | None:
    if way == SHIFTED:  # wherever they agree best
        return np.asarray(_across(image, there).max(1))
    turned = WAYS[way](there)
    return np.asarray((image * turned).sum((1, 2))) if turned.shape == image.shape else None


_TURNING = frozenset(("flip", "rot90", "transpose", "permute", "roll"))


def _cut(step: Step, anatomy: Anatomy, value: Value, target: Value, *, loose: bool = True) -> SourceLine | None:
    """The line of the program's text that cuts one of the two in another way than the other is; not `loose`: that turns it."""
    ours = sorted(anatomy.ancestors([value.number]), reverse=True)
    return step.parting(ours, sorted(anatomy.ancestors([target.number]), reverse=True), loose=loose)


def _turned(step: Step, anatomy: Anatomy, value: Value, target: Value) -> SourceLine | None:
    """The line of the program that turned only one of the two."""
    ours, theirs = anatomy.ancestors([value.number]), anatomy.ancestors([target.number])
    turning = [op for op in step.ops if op.name in _TURNING]
    done = {
        name: [sum(o.name == name and bool(set(o.outputs) & way) for o in turning) for way in (ours, theirs)]
        for name in _TURNING
    }
    for op in reversed(turning):
        made = set(op.outputs)
        if done[op.name][0] == done[op.name][1]:
            continue  # both are turned, each by itself
        if bool(made & ours) != bool(made & theirs) and op.source is not None and not op.module:
            return op.source
    return None


PLACEMENT = Experiment("placement", "Do label maps line up with their images?", ask, times=8, alone=False, always=True)
