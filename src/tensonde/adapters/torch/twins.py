"""Ties a run to another one that it is compared with: keeps, or takes over, initial weights, batches and random numbers.

A batch is what comes into a traced step from outside of it, and what the script makes of nothing between modules. Tensors
are taken over in place, in the order in which they are met, by shape and dtype.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.parameter import is_lazy

from tensonde.adapters.torch.tensors import dtype_name
from tensonde.session.options import Twin

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager

WEIGHTS, BATCHES = "weights", "batches"
MOST_BYTES = 4 << 30


class TwinFeed:
    """Belongs to the training thread."""

    def __init__(self, twin: Twin, eager: Eager) -> None:
        self.twin = twin
        self.eager = eager
        self.taken = 0
        self._seen: set[str] = set()
        self._files = 0
        self._bytes = 0
        self._weights: dict[str, Tensor] | None = None
        self._step = -1
        self._kept: dict[str, Tensor] = {}
        self._waiting: dict[tuple[Any, ...], deque[Tensor]] = {}
        self._drawn: Counter[tuple[Any, ...]] = Counter()

    # -- initial weights -------------------------------------------------------------------------

    def weights(self) -> None:
        """A root is about to be called: those of its parameters and buffers that were not seen before."""
        new = {name: tensor for name, tensor in self._named() if name not in self._seen and not is_lazy(tensor)}
        if not new:
            return
        self._seen.update(new)
        if self.twin.take and self.twin.weights:
            for name, tensor in new.items():
                other = self._others().get(self.twin.renamed.get(name, name))
                if other is not None and other.shape == tensor.shape:
                    tensor.detach().copy_(other)
                    self.taken += 1
        if self.twin.keep:
            unique = {name: tensor.detach().clone().contiguous() for name, tensor in new.items()}
            self._save(WEIGHTS, self._files, unique)
            self._files += 1

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.eager.parameters.live()
        for name, (reference, attribute) in list(self.eager.parameters.buffers.items()):
            held = getattr(reference(), attribute, None)
            if isinstance(held, Tensor):
                yield name, held

    def _others(self) -> dict[str, Tensor]:
        if self._weights is None:
            self._weights = {}
            for path in sorted((Path(self.twin.take) / WEIGHTS).glob("*.safetensors")):
                self._weights |= load_file(path)
        return self._weights

    # -- batches ---------------------------------------------------------------------------------

    def met(self, tensor: Tensor) -> None:
        """A tensor of the batch, before anything was computed from it."""
        if tensor.numel() == 0 or tensor.layout is not torch.strided:
            return
        if self._step != self.eager.step:
            self._turn()
        if self.twin.take and self.twin.batches:
            waiting = self._waiting.get((tuple(tensor.shape), dtype_name(tensor)))
            if waiting:
                tensor.detach().copy_(waiting.popleft())
                self.taken += 1
        if self.twin.keep and self._bytes < MOST_BYTES:
            self._bytes += tensor.numel() * tensor.element_size()
            self._kept[f"{len(self._kept):06d}"] = tensor.detach().clone().contiguous()

    def _turn(self) -> None:
        self.flush()
        self._step = self.eager.step
        self._drawn.clear()
        self._waiting = {}
        path = Path(self.twin.take) / BATCHES / f"{self._step:06d}.safetensors" if self.twin.take else None
        if path is not None and path.exists():
            for _, tensor in sorted(load_file(path).items()):
                self._waiting.setdefault((tuple(tensor.shape), dtype_name(tensor)), deque()).append(tensor)

    def flush(self) -> None:
        if self._kept:
            self._save(BATCHES, self._step, self._kept)
            self._kept = {}

    def _save(self, folder: str, number: int, tensors: dict[str, Tensor]) -> None:
        parent = Path(self.twin.keep) / folder
        parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, parent / f"{number:06d}.safetensors")

    # -- random numbers --------------------------------------------------------------------------

    @contextlib.contextmanager
    def drawing(self, name: str, shape: tuple[int, ...]) -> Iterator[None]:
        """Inside, the numbers depend only on the step, the op, the shape, and how many such ops ran before."""
        key = (self.eager.step, name.rstrip("_"), shape)
        self._drawn[key] += 1
        with torch.random.fork_rng():
            torch.random.manual_seed(zlib.crc32(repr((*key, self._drawn[key])).encode()))
            yield
