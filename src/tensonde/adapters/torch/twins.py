"""Ties a run to another one that it is compared with: keeps, or takes over, initial weights, batches and random numbers.

A batch is what comes into a traced step from outside of it, and what the script makes of nothing between modules. Tensors
are taken over in place, in the order in which they are met, by shape and dtype.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.parameter import is_lazy

from tensonde.adapters.draws import Draws, mask
from tensonde.adapters.fitting import fitted, squeezed
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import dtype_name
from tensonde.session.options import BATCHES, WEIGHTS, Twin

MOST_BYTES = 4 << 30


class TwinFeed:
    """Belongs to the training thread."""

    def __init__(self, twin: Twin, state: RunState) -> None:
        self.twin = twin
        self.state = state
        self.taken = 0
        self._seen: set[str] = set()
        self._begun = 0
        self._files = 0
        self._bytes = 0
        self._weights: dict[str, Tensor] | None = None
        self._step = -1
        self._kept: dict[str, Tensor] = {}
        self._waiting: dict[tuple[Any, ...], deque[Tensor]] = {}
        self._drawn: Counter[tuple[Any, ...]] = Counter()
        self._draws = Draws()

    # -- initial weights -------------------------------------------------------------------------

    def weights(self) -> None:
        """A root is about to be called: those of its parameters and buffers that were not seen before. Across frameworks all of them, in every
        traced step: each is compared by itself."""
        if (
            self.twin.across
            and self.state.step != self._begun
            and self.state.step < self.state.session.options.window[1]
        ):
            self._begun = self.state.step
            self._seen.clear()
            self._weights = None
        new = {name: tensor for name, tensor in self._named() if name not in self._seen and not is_lazy(tensor)}
        if not new:
            return
        self._seen.update(new)
        if self.twin.take and self.twin.weights:
            for name, tensor in new.items():
                other = self._others().get(self.twin.renamed.get(name, name))
                if other is None:
                    continue
                fit = fitted(other.numpy(), tuple(tensor.shape), transposed=name in self.twin.transposed)
                if fit is not None:
                    tensor.detach().copy_(torch.from_numpy(fit))
                    self.taken += 1
        if self.twin.keep:
            unique = {name: tensor.detach().clone().contiguous() for name, tensor in new.items()}
            self._save(f"{WEIGHTS}{self._begun}", self._files, unique)
            self._files += 1

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.state.parameters.live()
        for name, (reference, attribute) in list(self.state.parameters.buffers.items()):
            held = getattr(reference(), attribute, None)
            if isinstance(held, Tensor):
                yield name, held

    def _others(self) -> dict[str, Tensor]:
        if self._weights is None:
            self._weights = {}
            for path in sorted((Path(self.twin.take) / f"{WEIGHTS}{self._begun}").glob("*.safetensors")):
                self._weights |= load_file(path)
        return self._weights

    # -- batches ---------------------------------------------------------------------------------

    def met(self, tensor: Tensor) -> None:
        """A tensor of the batch, before anything was computed from it."""
        if tensor.numel() == 0 or tensor.layout is not torch.strided:
            return
        if self._step != self.state.step:
            self._turn()
        if self.twin.take and self.twin.batches:
            waiting = self._waiting.get(self._key(tensor))
            if waiting:
                tensor.detach().copy_(waiting.popleft().reshape(tensor.shape))
                self.taken += 1
        if self.twin.keep and self._bytes < MOST_BYTES:
            self._bytes += tensor.numel() * tensor.element_size()
            self._kept[f"{len(self._kept):06d}"] = tensor.detach().clone().contiguous()

    def _turn(self) -> None:
        self.flush()
        self._step = self.state.step
        self._drawn.clear()
        self._waiting = {}
        path = Path(self.twin.take) / BATCHES / f"{self._step:06d}.safetensors" if self.twin.take else None
        if path is not None and path.exists():
            for _, tensor in sorted(load_file(path).items()):
                self._waiting.setdefault(self._key(tensor), deque()).append(tensor)

    def _key(self, tensor: Tensor) -> tuple[Any, ...]:
        """Frameworks differ in what they take labels as, and in dimensions of size 1."""
        if not self.twin.across:
            return tuple(tensor.shape), dtype_name(tensor)
        kind = "f" if tensor.is_floating_point() else "c" if tensor.is_complex() else "i"
        return squeezed(tuple(tensor.shape)), kind

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
        key = (self.state.step, name.rstrip("_"), shape)
        self._drawn[key] += 1
        with torch.random.fork_rng():
            torch.random.manual_seed(zlib.crc32(repr((*key, self._drawn[key])).encode()))
            yield

    def drawn(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any]) -> Any:
        """What an op that draws gives in both runs, where the other one is of another framework."""
        if name == "dropout":
            given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
            tensor, p = given["input"], given.get("p", 0.5)
            if not given.get("training", True) or p == 0:
                return run(*args, **kwargs)
            factors = mask(self._draws.uniform(self.state.step, name, tuple(tensor.shape)), p)
            return tensor * torch.from_numpy(factors).to(tensor)
        with torch.random.fork_rng():
            out = run(*args, **kwargs)
        if name in _DRAWN and isinstance(out, Tensor):
            draw = getattr(self._draws, _DRAWN[name])
            out.detach().copy_(torch.from_numpy(draw(self.state.step, _DRAWN[name], tuple(out.shape))))
        return out


_DRAWN = {"randn": "normal", "randn_like": "normal", "rand": "uniform", "rand_like": "uniform"}
