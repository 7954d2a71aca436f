"""Two stored tensors of any size, piece by piece: how far apart, in a few megabytes of memory.

Both files are read ahead by a thread each while the piece before is compared: by the kernel, in one pass, or, for other
dtypes and values that are not finite, by numpy in blocks that stay in the processor's cache.
"""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensonde.compare.distance import Distance
from tensonde.digest.kernel import PAIRED, pair
from tensonde.errors import RecordingError
from tensonde.store.dtypes import SIZES, numbers
from tensonde.store.sources import Entry, TensorSource

Array = np.ndarray[Any, Any]

PIECE = 1 << 22
_BLOCK = 1 << 16
_ORDERED = {"float64": "i8", "float32": "i4", "float16": "i2", "bfloat16": "i2"}
_readers = ThreadPoolExecutor(4, "tensonde-compare")


@dataclass
class Measured:
    """`ulp` is the largest distance in representable numbers, for tensors of one floating dtype."""

    count: int = 0
    apart: float = 0.0
    norm_a: float = 0.0
    norm_b: float = 0.0
    product: float = 0.0
    max_abs: float = 0.0
    ulp: int | None = None
    odd: int = 0
    """Elements that are NaN or infinite in one only, or differently so."""
    equal: bool = True

    def distance(self) -> Distance:
        if self.equal:
            return Distance(0.0, 0.0, 1.0, 0.0, False)
        largest = math.sqrt(max(self.norm_a, self.norm_b))
        apart = math.sqrt(self.apart)
        relative = apart / largest if largest else 0.0
        root = math.sqrt(self.norm_a) * math.sqrt(self.norm_b)
        cosine = self.product / root if root else math.nan
        return Distance(max(relative, 1.0) if self.odd else relative, apart, cosine, self.max_abs, False)


def measure(a: TensorSource, one: Entry, b: TensorSource, other: Entry) -> Measured:
    """Of two entries with as many elements. Raises RecordingError where one cannot be read."""
    found = Measured()
    same = one.dtype == other.dtype
    if same and one.dtype in _ORDERED:
        found.ulp = 0
    sizes = [SIZES.get(entry.dtype, 1) for entry in (one, other)]
    elements = PIECE // max(sizes)
    mine, theirs = _ahead(pieces(a, one, elements * sizes[0])), _ahead(pieces(b, other, elements * sizes[1]))
    for raw_a, raw_b in zip(mine, theirs, strict=True):
        found.count += len(raw_a) // sizes[0]
        if same and one.dtype in PAIRED and _by_kernel(found, raw_a, raw_b, one.dtype):
            continue
        if same and _same_bytes(raw_a, raw_b):
            _add_equal(found, numbers(raw_a, one.dtype))
        else:
            _add(found, raw_a, raw_b, one.dtype, other.dtype)
    return found


def _by_kernel(found: Measured, a: Array, b: Array, dtype: str) -> bool:
    """False where there is no kernel, or where something is not finite."""
    sums = pair(a, b, dtype)
    if sums is None or sums[-1]:
        return False
    apart, norm_a, norm_b, product, largest, ulp, _ = sums
    found.apart += apart
    found.norm_a += norm_a
    found.norm_b += norm_b
    found.product += product
    found.max_abs = max(found.max_abs, largest)
    found.ulp = max(found.ulp or 0, ulp)
    found.equal = found.equal and ulp == 0
    return True


def pieces(source: TensorSource, entry: Entry, size: int) -> Iterator[Array]:
    """As `source.pieces` gives them, but each is good only until the next but one is asked for: memory is used again,
    because to get it anew from the system takes longer than to compare it."""
    if entry.file is None:
        yield from source.pieces(entry, size)
        return
    with _opened(entry) as file:
        file.seek(entry.offset)
        left = entry.nbytes
        rooms = [np.empty(min(size, left), np.uint8) for _ in range(3 if left > 2 * size else 2)]
        for k in itertools.count():
            if not left:
                return
            piece = rooms[k % len(rooms)][: min(size, left)]
            filled = 0
            while filled < len(piece):
                got = file.readinto(piece[filled:].data)
                if not got:
                    raise RecordingError(f"{entry.file} is truncated: {entry.site} is not all there.")
                filled += got
            left -= len(piece)
            yield piece


def _opened(entry: Entry) -> io.FileIO:
    assert entry.file is not None
    try:
        file = io.FileIO(entry.file)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), entry.offset, entry.nbytes, os.POSIX_FADV_SEQUENTIAL)
        return file
    except OSError as problem:
        raise RecordingError(f"{entry.site} cannot be read from {entry.file}: {problem.strerror}.") from None


def _ahead(given: Iterator[Array]) -> Iterator[Array]:
    """The next piece is read while this one is used."""
    waiting = _readers.submit(next, given, None)
    while (piece := waiting.result()) is not None:
        waiting = _readers.submit(next, given, None)
        yield piece


def _same_bytes(a: Array, b: Array) -> bool:
    return len(a) == len(b) and a.tobytes() == b.tobytes() if len(a) < 4096 else a.data == b.data


def _add_equal(found: Measured, values: Array) -> None:
    """Only the norms are still of interest, once anything differs; before that, not even these."""
    square = _square(values)
    found.norm_a += square
    found.norm_b += square
    found.product += square


def _square(values: Array) -> float:
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    with np.errstate(all="ignore"):
        total = sum(float(np.dot(block, block)) for block in _blocks(values))
        if not math.isfinite(total):
            wide = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
            total = float(np.dot(wide, wide))
    return total


def _blocks(values: Array) -> Iterator[Array]:
    for start in range(0, len(values), _BLOCK):
        yield values[start : start + _BLOCK]


def _add(found: Measured, raw_a: Array, raw_b: Array, dtype_a: str, dtype_b: str) -> None:
    a, b = numbers(raw_a, dtype_a), numbers(raw_b, dtype_b)
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        a, b = (x.astype(np.complex128).view(np.float64) for x in (a, b))
    if a.dtype != np.float32 or b.dtype != np.float32:
        a, b = a.astype(np.float64), b.astype(np.float64)
    for start in range(0, len(a), _BLOCK):
        one, other = a[start : start + _BLOCK], b[start : start + _BLOCK]
        with np.errstate(all="ignore"):
            difference = one - other
            apart = float(np.dot(difference, difference))
            if not math.isfinite(apart):
                _add_odd(found, one, other)
                continue
            found.norm_a += float(np.dot(one, one))
            found.norm_b += float(np.dot(other, other))
            found.product += float(np.dot(one, other))
        if apart or found.equal:
            largest = float(max(difference.max(), -difference.min()))
            found.equal = found.equal and largest == 0
            found.apart += apart
            found.max_abs = max(found.max_abs, largest)
    if found.ulp is not None and not found.equal:
        found.ulp = max(found.ulp, _ulp(raw_a, raw_b, dtype_a))


def _add_odd(found: Measured, one: Array, other: Array) -> None:
    """A block with NaN, Inf or numbers whose squares overflow."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    fine = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    odd = int(np.count_nonzero(~fine & ~same))
    a, b = np.where(fine, a, 0.0), np.where(fine, b, 0.0)
    difference = a - b
    found.odd += odd
    found.norm_a += float(np.dot(a, a))
    found.norm_b += float(np.dot(b, b))
    found.product += float(np.dot(a, b))
    found.apart += float(np.dot(difference, difference))
    largest = float(np.abs(difference).max(initial=0.0))
    found.max_abs = max(found.max_abs, largest)
    found.equal = found.equal and not odd and largest == 0


def _ulp(raw_a: Array, raw_b: Array, dtype: str) -> int:
    kind = np.dtype(_ORDERED[dtype])
    a, b = raw_a.view(kind), raw_b.view(kind)
    most = 0
    low = -(1 << (8 * kind.itemsize - 1))
    for start in range(0, len(a), _BLOCK):
        one, other = a[start : start + _BLOCK], b[start : start + _BLOCK]
        if dtype != "float64":
            one, other = one.astype(np.int64), other.astype(np.int64)
        one, other = (np.where(x < 0, low - x, x) for x in (one, other))
        infinite = _infinity(dtype)
        finite = (np.abs(one) < infinite) & (np.abs(other) < infinite)
        apart = np.abs(one - other)
        most = max(most, int(np.where(finite, apart, 0).max(initial=0)))
    return most


def _infinity(dtype: str) -> int:
    return {"float64": 0x7FF0000000000000, "float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
