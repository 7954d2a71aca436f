"""The reduction by torch's own ops, for devices without kernels of ours: in float32, and in float64 for tensors that are so wide themselves.

Tensors are copied into a buffer, one launch each (all parameters or gradients: one for all), each into rows of its own; what is left of its last row is NaN.
A `flush` reduces all rows with a fixed number of ops, whatever they hold. A tensor that is large itself is reduced where it lies, in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensonde.adapters.torch.digests.device.folding import PARTS, fold, sampled

WIDTH = 1024
"""Elements of a row: few enough for sums in float32, many enough for the host."""
FEW_ROWS, MOST_ROWS = 64, 2048
"""Of the buffer, which grows from one to the other (in float32: a quarter of a megabyte, 8 MB)."""
PIECE = 1 << 20
"""Elements of a large tensor that are reduced at once: bounds the memory for what lies between."""
MOST_LAYOUTS = 32


@dataclass
class Sums:
    """What a flush left on the device, in one tensor: PARTS of each row, then the samples."""

    values: Tensor
    counts: list[int] = field(default_factory=list)

    def rows(self, host: NDArray[Any]) -> NDArray[Any]:
        """The digests, from the same numbers on the host."""
        counts = np.array(self.counts)
        taken = sum(sampled(count)[1] for count in self.counts)
        parts = host[: len(host) - taken].reshape(len(PARTS), -1)
        return fold(parts, host[len(host) - taken :], counts, WIDTH)


class Staging:
    """Of one device, stream and dtype. What `take` gets comes out of `done` in the same order."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._rows = 0
        self._flat = torch.empty(0, dtype=dtype, device=device)
        self._begin = 0
        self._counts: list[int] = []
        self._done: list[Sums] = []
        self._indices: dict[tuple[int, ...], Tensor] = {}
        self._views: dict[tuple[int, tuple[torch.Size, ...]], list[Tensor]] = {}

    def take(self, tensors: Sequence[Tensor]) -> None:
        """None of them empty; the values are those of now."""
        small = [tensor for tensor in tensors if tensor.numel() <= PIECE]
        if len(small) < len(tensors):
            for tensor in tensors:  # in their order
                self._take_large(tensor) if tensor.numel() > PIECE else self._copy([tensor])
            return
        begin = 0
        while begin < len(small):
            end, lines = begin, 0
            while end < len(small) and (end == begin or lines + _lines(small[end]) <= MOST_ROWS):
                lines += _lines(small[end])
                end += 1
            self._copy(small[begin:end], lines)
            begin = end

    def done(self) -> list[Sums]:
        """What has been summed up since the last call."""
        self._flush()
        done, self._done = self._done, []
        return done

    def _copy(self, tensors: Sequence[Tensor], lines: int | None = None) -> None:
        if lines is None:
            lines = sum(map(_lines, tensors))
        if self._begin + lines > self._rows:
            if self._rows < MOST_ROWS:
                self._grow(self._begin + lines)
            if self._begin + lines > self._rows:
                self._flush()
        if len(tensors) == 1:
            begin, only = self._begin * WIDTH, tensors[0]
            self._flat[begin : begin + only.numel()].view(only.shape).copy_(only)
        else:
            key = self._begin, tuple([tensor.shape for tensor in tensors])
            views = self._views.get(key)
            if views is None:
                if len(self._views) >= MOST_LAYOUTS:
                    self._views.clear()
                views = self._views[key] = self._places(tensors)
            torch._foreach_copy_(views, tensors)
        self._begin += lines
        self._counts += [tensor.numel() for tensor in tensors]

    def _places(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        found, at = [], self._begin
        for tensor in tensors:
            found.append(self._flat[at * WIDTH : at * WIDTH + tensor.numel()].view(tensor.shape))
            at += _lines(tensor)
        return found

    def _grow(self, wanted: int) -> None:
        self._flush()
        rows = self._rows or FEW_ROWS
        while rows < min(wanted, MOST_ROWS):
            rows *= 2
        self._rows = rows
        self._flat = torch.full((rows * WIDTH,), nan, dtype=self._dtype, device=self._device)
        self._views.clear()
        self._indices.clear()

    def _flush(self) -> None:
        if not self._begin:
            return
        counts, rows = self._counts, self._begin
        matrix = self._flat[: rows * WIDTH].view(rows, WIDTH)
        indices = self._sample(counts)
        values = torch.empty(len(PARTS) * rows + len(indices), dtype=self._dtype, device=self._device)
        torch.index_select(self._flat, 0, indices, out=values[len(PARTS) * rows :])
        reduce(matrix, values[: len(PARTS) * rows].view(len(PARTS), rows), own=True)
        matrix.fill_(nan)
        self._begin, self._counts = 0, []
        self._done.append(Sums(values, counts))

    def _sample(self, counts: list[int]) -> Tensor:
        """Where in the buffer the sampled elements lie."""
        key = tuple(counts)
        found = self._indices.get(key)
        if found is None:
            parts, begin = [], 0
            for count in counts:
                parts.append(np.arange(0, count, sampled(count)[0]) + begin)
                begin += -(-count // WIDTH) * WIDTH
            if len(self._indices) >= MOST_LAYOUTS:
                self._indices.clear()
            found = self._indices[key] = to_device(np.concatenate(parts), self._device)
        return found

    def _take_large(self, tensor: Tensor) -> None:
        self._flush()
        flat = tensor.reshape(-1)
        count = flat.numel()
        stride, size = sampled(count)
        lines = -(-count // WIDTH)
        values = torch.empty(len(PARTS) * lines + size, dtype=self._dtype, device=self._device)
        parts = values[: len(PARTS) * lines].view(len(PARTS), lines)
        values[len(PARTS) * lines :].copy_(flat[::stride])
        whole = count // WIDTH
        for begin in range(0, whole, PIECE // WIDTH):
            end = min(begin + PIECE // WIDTH, whole)
            piece = flat[begin * WIDTH : end * WIDTH].view(end - begin, WIDTH)
            converted = piece.dtype is not self._dtype
            reduce(piece.to(self._dtype) if converted else piece, parts[:, begin:end], own=converted)
        if whole < lines:
            rest = torch.full((1, WIDTH), nan, dtype=self._dtype, device=self._device)
            rest[0, : count - whole * WIDTH].copy_(flat[whole * WIDTH :])
            reduce(rest, parts[:, whole:], own=True)
        self._done.append(Sums(values, [count]))


def reduce(matrix: Tensor, into: Tensor, *, own: bool) -> None:
    """Fills `into` with PARTS of each row. `own`: the matrix may be written to."""
    limits = torch.finfo(matrix.dtype)
    bits, exponent = (torch.int32, 0x7F800000) if matrix.dtype is torch.float32 else (torch.int64, 0x7FF << 52)
    low = torch.nan_to_num(matrix, inf, inf, inf).amin(1)
    high = torch.nan_to_num(matrix, -inf, -inf, -inf).amax(1)
    nans = torch.ne(matrix, matrix).sum(1, dtype=matrix.dtype)
    pos_inf = torch.eq(matrix, inf).sum(1, dtype=matrix.dtype)
    neg_inf = torch.eq(matrix, -inf).sum(1, dtype=matrix.dtype)
    negative = torch.lt(matrix, 0).sum(1, dtype=matrix.dtype)
    nonzero = torch.linalg.vector_norm(matrix, 0, 1)
    # Divided by the largest magnitude of their row, rounded down to a power of two, squares neither overflow nor vanish.
    scale = torch.maximum(high, low.neg()).clamp_(limits.tiny, limits.max)
    scale.view(bits).bitwise_and_(exponent)
    unit = matrix.div_(scale[:, None]) if own else matrix / scale[:, None]
    clean = torch.nan_to_num(unit, 0.0, 0.0, 0.0)
    abssum, norm = torch.linalg.vector_norm(clean, 1, 1), torch.linalg.vector_norm(clean, 2, 1)
    mean = clean.sum(1).div_((nans + pos_inf).add_(neg_inf).neg_().add_(WIDTH))
    apart = unit.sub_(mean[:, None]).nan_to_num_(0.0, 0.0, 0.0)
    parts = [low, high, nans, pos_inf, neg_inf, negative, nonzero, scale, mean, abssum, norm]
    parts += [torch.linalg.vector_norm(apart, 2, 1), apart.sum(1)]
    torch.stack(parts, out=into) if into.is_contiguous() else into.copy_(torch.stack(parts))


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Without waiting, where the host has memory for that."""
    tensor = torch.from_numpy(array)
    try:
        tensor = tensor.pin_memory()
    except (RuntimeError, NotImplementedError):
        pass
    return tensor.to(device, non_blocking=True)


def _lines(tensor: Tensor) -> int:
    return -(-int(tensor.numel()) // WIDTH)
