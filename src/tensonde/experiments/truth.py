"""Is the gradient that a function of the user's own passes on the derivative of what it computes?

torch's own derivatives are right. A function with a `backward` of its own may be wrong, and nothing shows but a training that learns worse.
Its backward is given random numbers; what it gives for each input is compared with the derivative of the ops that its forward computed, taken op
by op in double precision, and that one with a difference quotient at two distances. Healthy: the same, wherever the forward is not flat.

Not meant is what lies on purpose: a forward that is flat (rounding, signs, spikes, choices: straight-through estimators and surrogates), or that gives its input as
it is (gradients that are reversed, scaled or clipped). Not asked of functions that draw random numbers, or that leave torch on the way.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensonde.experiments.experiment import Answer, Experiment, Memory
from tensonde.experiments.step import Array, NotPossible, Op, OwnFunction, Step

MOST = 4
"""Functions that are asked."""
NEAR = 0.02
"""Of a derivative: how far a gradient in single precision may be from it."""
FLAT = 1e-6
"""Of the largest derivative: below, the forward is flat there, and a surrogate may stand for it."""
WRONG = 0.25
"""Part of the derivatives that must be missed."""
CHOICES = frozenset((
    "round", "floor", "ceil", "trunc", "frac", "sign", "sgn", "heaviside", "argmax", "argmin", "topk", "sort", "bucketize", "one_hot", "fmod", "remainder",
    "scatter", "scatter_", "round_", "floor_", "sign_", "searchsorted", "unique", "floor_divide",
))  # fmt: skip
"""Ops whose results jump: whoever writes a backward for them means something else than the derivative."""
BOUNDS = frozenset(
    (
        "clamp",
        "clamp_",
        "clamp_min",
        "clamp_max",
        "hardtanh",
        "hardsigmoid",
        "relu",
        "threshold",
        "where",
        "masked_fill",
        "maximum",
        "minimum",
    )
)
MIXING = frozenset(
    (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "matmul",
        "convolution",
        "sum",
        "mean",
        "cumsum",
        "_softmax",
        "_log_softmax",
        "max",
        "min",
        "amax",
    )
)
"""Beside a bound: where each number depends on many, it does not show which derivatives the bound makes flat."""
COMPARISONS = frozenset(("gt", "ge", "lt", "le", "eq", "ne"))


def ask(step: Step, memory: Memory) -> Iterable[Answer]:
    if not step.functions:
        raise NotPossible("no function has a custom backward")
    reasons, asked = [], 0
    for function in step.functions[:MOST]:
        try:
            answer = _asked(step, function)
        except NotPossible as problem:
            reasons.append(str(problem))
            continue
        asked += 1
        yield answer
    if not asked:
        raise NotPossible(reasons[0])


def _asked(step: Step, function: OwnFunction) -> Answer:
    names = (function.name,)
    behind = step.ops_between(function.output, tuple(function.gradients))
    if any(op.random for op in behind):
        raise NotPossible(f"{function.name} draws random numbers")
    if _jumps(step, behind):
        return Answer(True, f"{function.name} is not smooth, and its gradient stands for another", names=names)
    output = step.array(function.output)
    for number in function.gradients:
        given = step.array(number)
        if given.shape == output.shape and np.array_equal(given, output):
            return Answer(True, f"{function.name} only changes gradients", names=names)
    told = False
    derivatives = step.derivatives(function.output, function.seed, tuple(function.gradients))
    for number, said in function.gradients.items():
        true = derivatives.get(number)
        if (
            true is None
            or true.shape != said.shape
            or not np.isfinite(true).all()
            or not np.abs(true).max(initial=0.0) > 0
        ):
            continue
        told = True
        steep = np.abs(true) > FLAT * np.abs(true).max()
        missed = steep & (np.abs(said - true) > NEAR * np.abs(true) + 1e-3 * np.abs(true).max())
        if missed.sum() <= WRONG * steep.sum():
            continue
        quotient, derivative = _confirmed(step, function, number, true, missed)
        gradient = float((said * _direction(missed)).sum())
        return Answer(
            False,
            f"the backward of {function.name} returns {gradient:.4g}, but the derivative is {derivative:.4g}",
            {"gradient": gradient, "derivative": derivative, "quotient": quotient, "missed": float(missed.sum() / steep.sum())},
            names=names,
            source=function.source,
            op=function.name,
            part="false",
        )  # fmt: skip
    if not told:
        raise NotPossible(f"{function.name} is flat, or leaves torch")
    return Answer(True, f"{function.name} returns its derivative", names=names)


def _jumps(step: Step, behind: list[Op]) -> bool:
    """It rounds or chooses, or the result of a comparison becomes numbers, as where a neuron fires."""
    names = {op.name for op in behind}
    if names & CHOICES or (names & BOUNDS and names & MIXING):
        return True
    made = {number for op in behind if op.name in COMPARISONS for number in op.outputs}
    return any(
        op.name == "_to_copy" and made.intersection(op.inputs) and step.values[op.outputs[0]].kind == "float"
        for op in behind
        if op.outputs
    )


def _direction(missed: Array) -> Array:
    signs = np.random.Generator(np.random.PCG64(4)).choice((-1.0, 1.0), missed.shape)
    return np.asarray(np.where(missed, signs, 0.0))


def _confirmed(step: Step, function: OwnFunction, number: int, true: Array, missed: Array) -> tuple[float, float]:
    """The difference quotient along what was missed, and the derivative; they agree, or nothing is said."""
    direction = _direction(missed)
    derivative = float((true * direction).sum())
    size = max(float(np.abs(step.array(number)).mean()), 1e-3)
    for distance in (1e-4 * size, 1e-6 * size):
        quotient = step.quotient(function.output, function.seed, number, direction, distance)
        scale = max(abs(derivative), float(np.abs(true[missed]).max()))
        if not abs(quotient - derivative) <= NEAR * scale:
            raise NotPossible(f"{function.name} is not smooth where it was tested")
    return quotient, derivative


TRUTH = Experiment("truth", "Does a custom backward return the derivative?", ask, times=2, alone=False)
