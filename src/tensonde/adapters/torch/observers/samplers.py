"""Samplers that draw by weights: how many weights they have. A sampler draws numbers below the number of its weights, and
no others."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler, WeightedRandomSampler

from tensonde.adapters.torch.observers.origins import KNOWN


def is_distributed(sampler: Any) -> bool:
    """Gives each rank its share, in an order that its `epoch` decides."""
    return isinstance(sampler, DistributedSampler) and isinstance(getattr(sampler, "epoch", None), int)


def weighted(loader: Any) -> dict[str, Any] | None:
    """Of a loader that draws by weights, directly or in batches."""
    for sampler in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        if isinstance(sampler, WeightedRandomSampler):
            return {
                "weights": len(sampler.weights),
                "draws": sampler.num_samples,
                "line": KNOWN.made.line(sampler),
            }
    return None
