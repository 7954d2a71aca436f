"""Tensors of a computed step as arrays, and what has changed of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensonde.experiments.step import Array, Effect

ROUNDING = 1e-5
"""Changes below this part of the largest value are rounding."""


def spread(vector: Tensor, like: Tensor, dim: int) -> Tensor:
    shape = [1] * like.ndim
    shape[dim % like.ndim] = -1
    return vector.view(shape).expand(like.shape).to(like.dtype).clone()


def bare_step(kind: type) -> Any:
    """Its step, without the hooks that see steps of the training."""
    step = kind.step  # type: ignore[attr-defined]
    while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step


def comparable(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.layout is torch.strided


def array_of(tensor: Tensor) -> Array:
    plain = tensor.detach()
    if plain.dtype in (torch.bfloat16, torch.float16):
        plain = plain.to(torch.float32)
    return np.array(plain.cpu().numpy())


def effect_of(before: Tensor, after: Tensor) -> Effect:
    if before.shape != after.shape:
        return Effect(True, tuple(np.ones(size, dtype=bool) for size in after.shape))
    if before.is_floating_point() or before.is_complex():
        apart = ~((before == after) | (before.isnan() & after.isnan()))
        if not bool(apart.any()):
            return Effect(False, tuple(np.zeros(size, dtype=bool) for size in before.shape))
        scale = float(before.abs().nan_to_num(0, 0, 0).max())
        apart &= ~((before - after).abs() <= ROUNDING * scale)
    else:
        apart = before != after
        if not bool(apart.any()):
            return Effect(False, tuple(np.zeros(size, dtype=bool) for size in before.shape))
    return Effect(True, tuple(_any_but(apart, dim) for dim in range(before.ndim)))


def _any_but(mask: Tensor, dim: int) -> Array:
    return np.array(mask.transpose(0, dim).reshape(mask.shape[dim], -1).any(1).cpu().numpy())
