"""Samplers that draw by weights: how many weights they have. A sampler draws numbers below the number of its weights, and
no others."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler, WeightedRandomSampler

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.program import queries
from tensonde.program.lines import Json, line_at


def is_distributed(sampler: Any) -> bool:
    """Gives each rank its share, in an order that its `epoch` decides."""
    return isinstance(sampler, DistributedSampler) and isinstance(getattr(sampler, "epoch", None), int)


def deals(loader: Any) -> bool:
    """Gives each rank a share of its own, as DistributedSampler does, and the batch samplers that libraries put into a loader."""
    return dealt(loader)[0] > 1


def dealt(loader: Any) -> tuple[int, Json | None]:
    """In how many shares, and where the variable got its value that holds the sampler."""
    for sampler in (loader.sampler, loader.batch_sampler):
        shares = getattr(sampler, "num_replicas", None) or getattr(sampler, "num_processes", None)
        if isinstance(shares, int) and shares > 1:
            return shares, _bound(loader)
    return 0, None


def _bound(loader: Any) -> Json | None:
    place = KNOWN.made.place(loader)
    if place is None:
        return None
    path, number = place[0].co_filename, place[1]
    name = queries.keyword_argument(path, number, type(loader).__name__, "sampler")
    found = queries.assignment(path, name, before=number) if name else None
    return line_at(path, found) if found else None


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
