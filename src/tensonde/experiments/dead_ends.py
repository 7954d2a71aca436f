"""Does what the layers compute get to the loss, or does it die on the way?

All parameters are changed a little. Healthy: every op on the way to the loss that is given changed numbers gives changed numbers. An
op whose whole result stays the same to the last bit passes nothing on: a product with zeros, an activation that is off for every
sample. Asked again in later steps, since a weight may begin at 0 on purpose; zeros that are parameters are not meant at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from tensonde.experiments.anatomy import SHAPES, Anatomy
from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Op, Step

_PRODUCTS = frozenset(("mul", "mul_", "bmm", "mm", "matmul"))
_GATES = frozenset(
    ("relu", "relu_", "threshold", "leaky_relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold_")
)
SIZE = 0.05
"""How much of its spread a parameter is changed by."""


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    anatomy = Anatomy.of(step)
    parameters = [
        v for v in step.values if v.origin == "parameter" and v.kind == "float" and v.number in anatomy.before_loss
    ]
    if not parameters:
        raise NotPossible("the loss depends on no parameter")
    draw = np.random.Generator(np.random.PCG64(2))
    changes = {}
    for value in parameters:
        array = step.array(value.number)
        size = float(np.abs(array).mean()) or 1e-3
        changes[value.number] = (array + SIZE * size * draw.standard_normal(array.shape)).astype(array.dtype)
    effects = step.effects([changes])[0]
    found = 0
    for op in step.ops:
        if op.name not in _PRODUCTS and op.name not in _GATES:
            continue
        out = [number for number in op.outputs if number in anatomy.before_loss and number in anatomy.trained]
        if not out or prod(step.values[out[0]].shape) < 2 or op.name in SHAPES:
            continue
        moved = [n for n in op.inputs if n in anatomy.trained and n in effects and effects[n].changed and n not in out]
        if not moved and op.writes:
            moved = [n for n in op.writes if any(e.changed for e in (effects.get(n),) if e is not None)]
        if not moved or any(effects[number].changed for number in out):
            continue
        if op.name in _PRODUCTS and not _by_zeros(step, anatomy, op, moved):
            continue
        found += 1
        yield Answer(
            False,
            "a product with zeros" if op.name in _PRODUCTS else "an activation that is 0 for all",
            source=op.source,
            module=op.module,
            op=op.name,
            part="zeros" if op.name in _PRODUCTS else "off",
            names=tuple(_layer(step, anatomy, number) for number in moved[:1]),
        )
    if not found:
        yield Answer(True, "changes reach the loss")


def _by_zeros(step: Step, anatomy: Anatomy, op: Op, moved: list[int]) -> bool:
    others = [number for number in op.inputs if number not in moved]
    if any(number in anatomy.computed for number in others):
        return False
    arrays: list[Array] = [step.array(number) for number in others if step.values[number].kind == "float"]
    return all(not array.any() for array in arrays)


def _layer(step: Step, anatomy: Anatomy, value: int) -> str:
    """The module that made a value."""
    waiting, seen = [value], set()
    while waiting:
        number = waiting.pop(0)
        if number in seen:
            continue
        seen.add(number)
        for op in anatomy.makers(number):
            if op.module and anatomy.is_layer(op):
                return op.module
            waiting += [given for given in op.inputs if given in anatomy.trained]
    return ""


DEAD_ENDS = Experiment("dead-ends", "Does every layer reach the loss?", ask, first=10)
