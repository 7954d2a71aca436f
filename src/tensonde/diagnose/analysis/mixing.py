"""What the gradients that optimizers get are made of: how much of each rank's own gradient is in them.

Sketches are linear, so a few numbers per parameter and rank tell it, exactly but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tensonde.diagnose.case import Case
from tensonde.diagnose.world import World, same
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, WeightRecord

_ROUNDING = 1e-3
"""Of the size of a gradient: as much as float16 on the way leaves."""
_APART = 1e-2
"""Ranks whose gradients differ by less tell nothing."""
_MOST_RANKS = 4
"""A sketch has eight numbers: with more ranks than this, shares of single ones are guesses."""


_LOSSES = ops(Trait.LOSS_FROM_ZERO | Trait.ELEMENTWISE_LOSS)


@dataclass(frozen=True, slots=True)
class Mix:
    """The gradient of one parameter in the first step. `factor`: it is that many times the mean over the ranks. `shares`: else, how much of each rank's
    gradient it is the sum of. `last`: it is made of the last backward pass alone, though there were several `passes`.
    None of these: of something else."""

    factor: float | None = None
    shares: tuple[float, ...] | None = None
    last: bool = False
    passes: int = 1


def mixes(world: World) -> dict[str, Mix]:
    """Of parameters that all ranks have alike before the step and after it, with gradients of their own that differ."""
    found = {}
    for name, records in world.weights.items():
        if all(one.own for one in records) and same([one.before for one in records]):
            used = _used(world, name, records)
            own = _rows([one.own for one in records])
            if used is not None and own is not None and _apart(own):
                mix = _mix(used, own, _rows([one.own for one in records], "last."))
                found[name] = replace(mix, passes=int(max(one.own["passes"] for one in records)))
    return found


def _used(world: World, name: str, records: list[WeightRecord]) -> NDArray[np.float64] | None:
    """What the ranks step it with; None where they end with different values, or step with different gradients."""
    facts = [case.facts.parameters.get(name) for case in world.cases]
    stepping = [one for one, fact in zip(records, facts, strict=True) if fact is None or fact.optimizers]
    others = [fact for fact in facts if fact is not None and not fact.optimizers]
    together = same([one.after for one in records]) or bool(others and all(one.changed for one in others))
    gradients = [one.gradient for one in stepping]
    if not stepping or not together or (len(gradients) > 1 and not same(gradients)):
        return None
    rows = _rows(gradients[:1])
    return rows[0] if rows is not None else None


def _rows(digests: list[Mapping[str, float]], prefix: str = "") -> NDArray[np.float64] | None:
    if any(f"{prefix}sketch.0" not in one or one.get("nan", 0) + one.get("pos_inf", 0) > 0 for one in digests):
        return None
    return np.array([[one[f"{prefix}sketch.{k}"] for k in range(8)] for one in digests])


def _apart(own: NDArray[np.float64]) -> bool:
    sizes = np.linalg.norm(own, axis=1)
    return bool(sizes.min() > 0 and np.linalg.norm(own - own.mean(0), axis=1).max() > _APART * sizes.max())


def _mix(used: NDArray[np.float64], own: NDArray[np.float64], last: NDArray[np.float64] | None) -> Mix:
    if (factor := _multiple(used, own.mean(0))) is not None:
        return Mix(factor=factor)
    if last is not None and (factor := _multiple(used, last.mean(0))) is not None:
        return Mix(factor=factor, last=True)
    if len(own) <= _MOST_RANKS:
        shares, *_ = np.linalg.lstsq(own.T, used, rcond=None)
        if np.linalg.norm(own.T @ shares - used) <= _ROUNDING * np.linalg.norm(used):
            return Mix(shares=tuple(float(one) for one in shares))
    return Mix()


def _multiple(used: NDArray[np.float64], of: NDArray[np.float64]) -> float | None:
    size = float(of @ of)
    factor = float(used @ of) / size if size > 0 else 0.0
    return factor if factor and np.linalg.norm(used - factor * of) <= _ROUNDING * np.linalg.norm(used) else None


def is_mean(case: Case) -> bool:
    """The loss of the first step is a mean over the batch, and nothing divides it."""
    trace = case.first
    return trace is not None and trace.loss is not None and is_mean_op(trace.ops[trace.loss])


def is_mean_op(op: OpRecord) -> bool:
    return op.op == "mean" or (op.op in _LOSSES and op.arguments.get("reduction", "mean") in ("mean", None))
