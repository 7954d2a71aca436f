"""Digests of tensors that are not in CPU memory, without waiting for the device.

Each tensor is reduced on its device to one short vector; `settle` copies all of them to the host at once and
fills the rows that were reserved in the block. UNTESTED ON A GPU: the tests run it on CPU tensors only, where
it agrees with the reference.

Statistics are summed in float64, or in float32 where the device has no float64 (mps). Where the kernel makes
one pass, this launches dozens of small reductions and needs memory for a few copies of the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensonde.digest import DTYPES, Block
from tensonde.digest.layout import COUNTS, EXPONENT_BINS, EXPONENT_SAMPLE, STATS

NO_FLOAT64 = frozenset({"mps"})
_NAMES = {getattr(torch, name): name for name in DTYPES if hasattr(torch, name)}


class DeviceDigests:
    """The digests under way: rows reserved in a block, to be filled by `settle` before it is cleared.

    Not for several threads. A tensor is read when `add` is called, in the device's current stream.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[int, str, torch.Tensor]] = []

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, block: Block, site: int, tensor: torch.Tensor, call: int = 0) -> int:
        """Reserves a row and starts its reduction; -1 if it cannot be digested or the block is full."""
        if not can_digest(tensor):
            block.skipped += 1
            return -1
        with torch.no_grad():
            packed = reduce(tensor.detach())
        index = block.reserve(site, call)
        if index >= 0:
            self._pending.append((index, _NAMES[tensor.dtype], packed))
        return index

    def settle(self, rows: NDArray[Any]) -> list[int]:
        """Waits for the device, fills the reserved rows, and returns the indices of those with NaN or Inf.

        `rows` is a writable view of the block's rows. One copy per device.
        """
        pending, self._pending = self._pending, []
        nonfinite = []
        for device in dict.fromkeys(packed.device for _, _, packed in pending):
            here = [entry for entry in pending if entry[2].device == device]
            vectors = torch.stack([packed for _, _, packed in here]).cpu().numpy()
            for (index, name, _), vector in zip(here, vectors, strict=True):
                fill(rows[index : index + 1], vector, single=device.type in NO_FLOAT64)
                rows["dtype"][index] = DTYPES.index(name)
                if rows["nan"][index] or rows["pos_inf"][index] or rows["neg_inf"][index]:
                    nonfinite.append(index)
        return nonfinite


def can_digest(tensor: object) -> bool:
    """Whether `reduce` knows what to do with it."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.dtype in _NAMES
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_nested
        and not tensor.is_quantized
    )


def fill(row: NDArray[Any], vector: NDArray[Any], single: bool) -> None:
    """Unpacks what `reduce` packed: counts, the bits of the statistics, the histogram."""
    counts, bits, exponents = np.split(vector, [len(COUNTS), len(COUNTS) + len(STATS)])
    stats = bits.astype(np.int32).view(np.float32) if single else np.ascontiguousarray(bits).view(np.float64)
    for name, value in zip(COUNTS + STATS, (*counts, *stats), strict=True):
        row[name] = value
    row["exponents"] = exponents


def reduce(tensor: torch.Tensor) -> torch.Tensor:
    """One int64 vector with all fields, on the tensor's device, computed without a synchronisation."""
    single = tensor.device.type in NO_FLOAT64
    wide = torch.float32 if single else torch.float64
    x = _real(tensor, wide).reshape(-1)
    if x.numel() == 0:
        return _pack([x.new_zeros(())] * len(COUNTS), [*[x.new_full((), torch.nan)] * 6, x.new_zeros(())], x, wide)
    finite = torch.isfinite(x)
    clean = torch.where(finite, x, 0)
    n = torch.count_nonzero(finite)
    some = n > 0
    low = torch.where(finite, x, torch.inf).amin().to(wide) + 0.0
    high = torch.where(finite, x, -torch.inf).amax().to(wide) + 0.0
    most = torch.maximum(low.abs(), high.abs())
    # Divided by the largest magnitude, squares stay in range; those of float32 in float64 do so anyway.
    scale = torch.where(some & (most > 0), most, 1.0) if x.dtype == wide else torch.ones_like(most)
    unit = clean / scale if x.dtype == wide else clean
    mean = unit.sum(dtype=wide) / n
    apart = torch.where(finite, unit - torch.where(some, mean, 0).to(x.dtype), 0)
    rest = apart.sum(dtype=wide) / n  # what rounding the mean to x.dtype left over
    variance = (_squares(apart, wide) / n - rest * rest).clamp_min(0)
    same = low == high
    stats = [
        low,
        high,
        torch.where(same, low, mean * scale),
        torch.where(same, 0.0, variance.sqrt() * scale),
        most,
        torch.where(same, most, unit.abs().sum(dtype=wide) / n * scale),
    ]
    stats = [torch.where(some, value, torch.nan) for value in stats]
    stats.append(_squares(unit, wide).sqrt() * scale)
    counts = [
        torch.full_like(n, x.numel()),
        torch.count_nonzero(torch.isnan(x)),
        torch.count_nonzero(x == torch.inf),
        torch.count_nonzero(x == -torch.inf),
        torch.count_nonzero(x == 0),
        torch.count_nonzero(finite & (x < 0)),
    ]
    return _pack(counts, stats, x, wide)


def _real(tensor: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    """Floats of at most 32 bits as float32, the rest as `wide`, complex numbers as magnitudes."""
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.resolve_conj()).to(wide)
        size = torch.hypot(parts[..., 0], parts[..., 1])
        return torch.where(torch.isnan(parts).any(-1), torch.nan, size)
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(torch.float32 if narrow else wide)


def _squares(x: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    return torch.linalg.vector_norm(x, dtype=wide).square()


def _exponents(x: torch.Tensor) -> torch.Tensor:
    stride = max(1, -(-x.numel() // EXPONENT_SAMPLE))
    sample = x[::stride]
    bins = ((torch.frexp(sample).exponent + 39) >> 1).clamp(0, EXPONENT_BINS - 1)
    counted = torch.isfinite(sample) & (sample != 0)
    which = torch.arange(EXPONENT_BINS, device=x.device)
    return torch.count_nonzero((bins[:, None] == which) & counted[:, None], dim=0)


def _pack(counts: list[torch.Tensor], stats: list[torch.Tensor], x: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    """Counts stay exact because everything travels as int64: of a statistic, its bits."""
    bits = torch.stack([value.to(wide) for value in stats])
    bits = bits.view(torch.int32 if wide == torch.float32 else torch.int64).to(torch.int64)
    return torch.cat([torch.stack([value.to(torch.int64) for value in counts]), bits, _exponents(x)])
