"""Dumps that are compared on a Ray cluster: each task opens both and takes a share of the tensors.

The dumps must be reachable under the same path from every node. Ray is started here if no cluster is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tensonde.compare.stream import Measured, measure
from tensonde.errors import UsageError
from tensonde.store.sources import TensorSource, open_source

SHARES = 4
"""Tasks for each processor of the cluster, so that a slow one does not hold up the others."""


class Ray:
    """Measures pairs as `sources.measured_here` does, elsewhere. `address` as `ray.init` takes it."""

    def __init__(self, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("--engine ray needs Ray; install it with `pip install 'tensonde[ray]'`.") from None
        self.ray: Any = ray
        if not ray.is_initialized():
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    def __call__(self, a: TensorSource, b: TensorSource, pairs: Sequence[Any]) -> Iterator[Measured | None]:
        places_a = {id(entry): k for k, entry in enumerate(a.entries)}
        places_b = {id(entry): k for k, entry in enumerate(b.entries)}
        jobs = [(places_a[id(one)], places_b[id(other)], one.nbytes + other.nbytes) for one, other in pairs]
        task = self.ray.remote(measure_share)
        workers = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        waiting = [
            task.remote(str(a.path.absolute()), str(b.path.absolute()), share)
            for share in shares(jobs, workers * SHARES)
        ]
        for reference in waiting:
            yield from self.ray.get(reference)


def shares(jobs: Sequence[tuple[int, int, int]], count: int) -> list[list[tuple[int, int]]]:
    """Runs of neighbouring jobs with about the same number of bytes each."""
    limit = sum(size for *_, size in jobs) / max(1, count)
    found: list[list[tuple[int, int]]] = [[]]
    filled = 0.0
    for one, other, size in jobs:
        if found[-1] and filled + size > limit:
            found.append([])
            filled = 0.0
        found[-1].append((one, other))
        filled += size
    return [share for share in found if share]


def measure_share(path: str, other_path: str, share: Sequence[tuple[int, int]]) -> list[Measured | None]:
    """Runs on a worker."""
    found: list[Measured | None] = []
    with open_source(Path(path)) as a, open_source(Path(other_path)) as b:
        for one, other in share:
            mine, theirs = a.entries[one], b.entries[other]
            same = _elements(mine.shape) == _elements(theirs.shape)
            found.append(measure(a, mine, b, theirs) if same else None)
    return found


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
