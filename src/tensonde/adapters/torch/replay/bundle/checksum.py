"""Checksums of results: equal where every bit is, but for what a NaN carries, which differs between processors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.replay.execute import Outcome, dense
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import raw_view

MOST_BYTES = 256 << 20
"""Larger results are not looked at."""


def checksum(tensor: Tensor) -> str | None:
    plain = dense(tensor.detach())
    if plain.numel() * plain.element_size() > MOST_BYTES:
        return None
    if plain.is_floating_point() and bool(plain.isnan().any()):
        plain = plain.masked_fill(plain.isnan(), float("nan"))
    content, dtype, shape = raw_view(plain)
    made = hashlib.blake2b(f"{dtype}{list(shape)}".encode(), digest_size=16)
    made.update(content)
    return made.hexdigest()


def results(outcome: Outcome, leaf_name: Callable[[Tensor], str]) -> dict[str, Any]:
    """Of every value that calls gave, by slot, and of every gradient, by the name of its leaf."""
    with unseen(), torch.no_grad():
        return {
            "values": {str(int(slot)): checksum(value) for slot, value in outcome.values.items()},
            "gradients": [
                {leaf_name(leaf): checksum(gradient) for leaf, gradient in pairs} for pairs in outcome.gradients
            ],
        }
