"""Ties a run to another one that it is compared with, maybe of another framework: keeps, or takes over, initial weights,
batches and random numbers (see `adapters/torch/twins.py`).

A batch is what a pass is called with. Tensors are taken over in place, in the order in which they are met, by shape and kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tensonde.adapters.draws import Draws, mask
from tensonde.adapters.fitting import fitted, squeezed
from tensonde.adapters.mindspore.tensors import shape_of, tensors_in, values_of
from tensonde.adapters.mindspore.tracing.dispatch import NOTHING
from tensonde.session.options import BATCHES, WEIGHTS, Twin

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

MOST_BYTES = 4 << 30
_DRAWN = {"StandardNormal": "normal", "UniformReal": "uniform"}


class TwinFeed:
    """Belongs to the training thread."""

    def __init__(self, twin: Twin, training: PyNative) -> None:
        self.twin, self.training = twin, training
        self.taken = 0
        self._seen: set[str] = set()
        self._begun = 0
        self._files = 0
        self._bytes = 0
        self._weights: dict[str, NDArray[Any]] | None = None
        self._step = -1
        self._kept: dict[str, NDArray[Any]] = {}
        self._met: dict[int, Any] = {}
        """Tensors of this step by id; they are held, so that no other one gets it."""
        self._waiting: dict[tuple[Any, ...], deque[NDArray[Any]]] = {}
        self._draws = Draws()

    # -- initial weights -------------------------------------------------------------------------

    def weights(self) -> None:
        """A root is about to be called: those of its parameters and statistics that were not seen before; across frameworks all of them, in
        every traced step."""
        if (
            self.twin.across
            and self.training.step != self._begun
            and self.training.step < self.training.session.options.window[1]
        ):
            self._begun = self.training.step
            self._seen.clear()
            self._weights = None
        new = {name: tensor for name, tensor in self._named() if name not in self._seen}
        if not new:
            return
        self._seen.update(new)
        for name, tensor in new.items() if self.twin.take and self.twin.weights else ():
            other = self._others().get(self.twin.renamed.get(name, name))
            if other is not None:
                self._write(tensor, fitted(other, shape_of(tensor), transposed=name in self.twin.transposed))
        if self.twin.keep:
            arrays = {name: values_of(tensor) for name, tensor in new.items()}
            self._save(
                f"{WEIGHTS}{self._begun}",
                self._files,
                {name: array.copy() for name, array in arrays.items() if array is not None},
            )
            self._files += 1

    def _named(self) -> Iterator[tuple[str, Any]]:
        parameters = self.training.parameters
        yield from parameters.live()
        for name, (reference, attribute) in list(parameters.buffers.items()):
            held = getattr(reference(), attribute, None)
            if held is not None:
                yield name, held

    def _others(self) -> dict[str, NDArray[Any]]:
        if self._weights is None:
            self._weights = {}
            for path in sorted((Path(self.twin.take) / f"{WEIGHTS}{self._begun}").glob("*.safetensors")):
                self._weights |= load_file(path)
        return self._weights

    def _write(self, tensor: Any, new: NDArray[Any] | None) -> None:
        held = values_of(tensor)
        if held is not None and new is not None and held.shape == new.shape:
            np.copyto(held, new.astype(held.dtype))
            self.taken += 1

    # -- batches ---------------------------------------------------------------------------------

    def met(self, given: Any) -> None:
        """A pass is called with these, and nothing was computed from them."""
        if self._step != self.training.step:
            self._turn()
        if self.training.tracing.tracer is None:
            return
        for tensor in tensors_in(given):
            if id(tensor) in self._met:
                continue
            self._met[id(tensor)] = tensor
            held = values_of(tensor)
            if held is None or not held.size:
                continue
            waiting = self._waiting.get((squeezed(held.shape), _kind(held))) if self.twin.batches else None
            if waiting:
                self._write(tensor, waiting.popleft().reshape(held.shape))
            if self.twin.keep and self._bytes < MOST_BYTES:
                self._bytes += held.nbytes
                self._kept[f"{len(self._kept):06d}"] = held.copy()

    def _turn(self) -> None:
        self.flush()
        self._step = self.training.step
        self._met.clear()
        self._waiting = {}
        path = Path(self.twin.take) / BATCHES / f"{self._step:06d}.safetensors" if self.twin.take else None
        if path is not None and path.exists():
            for _, array in sorted(load_file(path).items()):
                self._waiting.setdefault((squeezed(array.shape), _kind(array)), deque()).append(array)

    def flush(self) -> None:
        if self._kept:
            self._save(BATCHES, self._step, self._kept)
            self._kept = {}

    def _save(self, folder: str, number: int, arrays: dict[str, NDArray[Any]]) -> None:
        parent = Path(self.twin.keep) / folder
        parent.mkdir(parents=True, exist_ok=True)
        save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}, parent / f"{number:06d}.safetensors"
        )

    # -- random numbers --------------------------------------------------------------------------

    def drawn(self, name: str, args: Any) -> Any:
        """What a primitive that draws gives in both runs; `NOTHING`: it is no such one."""
        step = self.training.step
        given = args[2] if len(args) == 3 and args[1] == name and isinstance(args[2], tuple) else args
        if name == "Dropout":
            tensor, keep = given[0], float(given[1])
            factors = mask(self._draws.uniform(step, "dropout", shape_of(tensor)), 1 - keep)
            values = values_of(tensor)
            if values is None:
                return NOTHING
            kept = (factors > 0).astype(values.dtype)  # the backward pass divides by the share that is kept
            return Tensor((values * factors).astype(values.dtype)), Tensor(kept)
        if name in _DRAWN and isinstance(given[0], tuple):
            draw = getattr(self._draws, _DRAWN[name])
            return Tensor(draw(step, _DRAWN[name], given[0]))
        return NOTHING


def _kind(array: NDArray[Any]) -> str:
    """Labels are int32 here and int64 there."""
    return "i" if array.dtype.kind in "iub" else array.dtype.kind
