"""Launches the kernels: where a device has Triton (CUDA, ROCm, XPU).

UNTESTED ON A GPU. The kernels run under Triton's interpreter in tests, where they agree with the reference, and are compiled for GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensonde.adapters.torch.digests.device import kernels
from tensonde.adapters.torch.digests.device.staging import to_device
from tensonde.digest.layout import ROW

BLOCK, WIDE_BLOCK = 2048, 1024
MOST_PROGRAMS = 512
"""Of one tensor."""
PARTS = 16384
"""What programs may leave before it is added up: 2 MB."""
SLOTS = 2048
"""Tensors of a batch."""
_WIDE = frozenset({torch.float64, torch.int64, torch.int32, torch.uint64, torch.uint32})
_WORDS = ROW.itemsize // 8
_DIMS = 4


@dataclass
class Rows:
    """Digests as they are, on the device."""

    values: Tensor
    counts: list[int] = field(default_factory=list)

    def rows(self, host: NDArray[Any]) -> NDArray[Any]:
        return host.view(ROW)


class Fused:
    """Of one stream of a device. What `take` gets comes out of `done` in the same order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._parts = torch.empty(PARTS * int(kernels.PART), dtype=torch.float64, device=device)
        self._spans = torch.empty(SLOTS * 2, dtype=torch.int32, device=device)
        self._rows: Tensor | None = None
        self._counts: list[int] = []
        self._used = 0
        self._done: list[Rows] = []
        self._tables: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}

    def take(self, tensors: Sequence[Tensor]) -> None:
        """None of them empty; the values are those of now."""
        begin = 0
        while begin < len(tensors):
            end = begin + 1
            kind = tensors[begin].dtype
            if tensors[begin].is_contiguous():
                programs = _programs(tensors[begin])
                while (
                    end < len(tensors)
                    and tensors[end].dtype is kind
                    and tensors[end].is_contiguous()
                    and end - begin < SLOTS
                    and programs + _programs(tensors[end]) <= PARTS
                ):
                    programs += _programs(tensors[end])
                    end += 1
            if end - begin > 1:
                self._many([_readable(tensor) for tensor in tensors[begin:end]])
            else:
                self._one(_readable(tensors[begin]))
            begin = end

    def done(self) -> list[Rows]:
        self._combine()
        done, self._done = self._done, []
        return done

    def _room(self, slots: int, programs: int) -> Tensor:
        if len(self._counts) + slots > SLOTS or self._used + programs > PARTS:
            self._combine()
        if self._rows is None:
            self._rows = torch.empty(SLOTS * _WORDS, dtype=torch.int64, device=self._device)
        return self._rows

    def _one(self, tensor: Tensor) -> None:
        programs = _programs(tensor)
        rows = self._room(1, programs)
        ordered = collapsed(sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda dim: -dim[1]))
        logical = collapsed(list(zip(tensor.shape, tensor.stride(), strict=True)))
        if max(len(ordered), len(logical)) > _DIMS or any(stride < 0 for _, stride in logical):
            tensor = tensor.contiguous()
            ordered = logical = [(tensor.numel(), 1)]
        wide = tensor.dtype in _WIDE
        kernels.digest_one[(programs,)](
            tensor, tensor.numel(), *_four(ordered), *_four(logical),
            self._parts, self._spans, rows.view(torch.int16), len(self._counts), self._used,
            BLOCK=WIDE_BLOCK if wide else BLOCK, WIDE=wide, DENSE=_flat(ordered), FLAT=_flat(logical),
        )  # fmt: skip
        self._used += programs
        self._counts.append(tensor.numel())

    def _many(self, tensors: Sequence[Tensor]) -> None:
        counts = [_programs(tensor) for tensor in tensors]
        total = sum(counts)
        rows = self._room(len(tensors), total)
        key = tuple([(tensor.data_ptr(), tensor.numel()) for tensor in tensors])
        held = self._tables.get(key)
        if held is None:
            if len(self._tables) >= 16:
                self._tables.clear()
            held = self._tables[key] = self._table(tensors, counts)
        wide = tensors[0].dtype in _WIDE
        kernels.digest_many[(total,)](
            *held, self._parts, self._spans, rows.view(torch.int16), len(self._counts), self._used,
            ELEMENT=kernels.element(tensors[0].dtype), BLOCK=WIDE_BLOCK if wide else BLOCK, WIDE=wide,
        )  # fmt: skip
        self._used += total
        self._counts += [tensor.numel() for tensor in tensors]

    def _table(self, tensors: Sequence[Tensor], counts: list[int]) -> tuple[Tensor, Tensor]:
        begins = np.concatenate(([0], np.cumsum(counts)[:-1]))
        lines = [
            (tensor.data_ptr(), tensor.numel(), int(begin), count)
            for tensor, begin, count in zip(tensors, begins, counts, strict=True)
        ]
        owners = np.repeat(np.arange(len(tensors), dtype=np.int32), counts)
        return to_device(np.array(lines, dtype=np.int64).reshape(-1), self._device), to_device(owners, self._device)

    def _combine(self) -> None:
        if not self._counts or self._rows is None:
            return
        rows, slots = self._rows, len(self._counts)
        kernels.combine[(slots,)](self._parts, self._spans, rows, rows.view(torch.float64), MOST=MOST_PROGRAMS)
        self._done.append(Rows(rows[: slots * _WORDS], self._counts))
        self._rows, self._counts, self._used = None, [], 0


def collapsed(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same elements in the same order, in as few dimensions as they take."""
    found: list[tuple[int, int]] = []
    for size, stride in dims:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return found or [(1, 1)]


def _flat(dims: list[tuple[int, int]]) -> bool:
    return len(dims) == 1 and dims[0][1] == 1


def _four(dims: list[tuple[int, int]]) -> list[int]:
    """Sizes of the inner three, strides of all four."""
    padded = [(1, 0)] * (_DIMS - len(dims)) + dims
    return [size for size, _ in padded[1:]] + [stride for _, stride in padded]


def _programs(tensor: Tensor) -> int:
    block = WIDE_BLOCK if tensor.dtype in _WIDE else BLOCK
    return min(MOST_PROGRAMS, max(1, -(-int(tensor.numel()) // (4 * block))))


def _readable(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor
