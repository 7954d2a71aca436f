"""Digests by Triton: one pass over a tensor in one launch, many tensors in one launch, and one more launch that adds up what they left.

A program sums up blocks of its tensor. Inside a block it computes in float32 (float64 for wide elements), divided by a power of two, so that nothing overflows
or vanishes; from block to block in float64, with the distance from the mean kept up to date. `combine` makes ROWs of it, as `digest/layout.py` lays them out.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tensonde.digest.layout import EXPONENT_BINS, EXPONENT_SAMPLE, ROW

_offsets = {name: int(place[1]) for name, place in (ROW.fields or {}).items()}
PART = tl.constexpr(16)
"""Words of what one program leaves, in float64."""
WORDS = tl.constexpr(ROW.itemsize // 8)
HALVES = tl.constexpr(ROW.itemsize // 2)
COUNTS = tl.constexpr(_offsets["count"] // 8)
STATS = tl.constexpr(_offsets["min"] // 8)
EXPONENTS = tl.constexpr(_offsets["exponents"] // 2)
BINS = tl.constexpr(EXPONENT_BINS)
SAMPLE = tl.constexpr(EXPONENT_SAMPLE)
NOWHERE = tl.constexpr(-4096)
"""The exponent of nothing."""


@triton.jit
def _power(exponent, WIDE: tl.constexpr):
    """2 to this power, 0 where that is out of range."""
    if WIDE:
        bits = ((exponent + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
        return tl.where(exponent < -1022, 0.0, bits)
    bits = ((exponent + 127).to(tl.int32) << 23).to(tl.float32, bitcast=True)
    return tl.where(exponent < -126, 0.0, bits)


@triton.jit
def _exponent(size, WIDE: tl.constexpr):
    """Of the binary representation; the smallest normal one for what is smaller."""
    if WIDE:
        biased = (size.to(tl.int64, bitcast=True) >> 52) & 2047
        return tl.maximum(biased - 1023, -1022).to(tl.int32)
    biased = (size.to(tl.int32, bitcast=True) >> 23) & 255
    return tl.maximum(biased - 127, -126).to(tl.int32)


@triton.jit
def _offset(at, n1, n2, n3, t0, t1, t2, t3, FLAT: tl.constexpr):
    """Where the element of this number lies, in dimensions of any size times n1, n2 and n3."""
    if FLAT:
        return at
    found = (at % n3) * t3
    at = at // n3
    found += (at % n2) * t2
    at = at // n2
    return found + (at % n1) * t1 + (at // n1) * t0


@triton.jit
def _sum_up(
    x,
    n,
    n1,
    n2,
    n3,
    t0,
    t1,
    t2,
    t3,
    program,
    programs,
    part,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    FLAT: tl.constexpr,
):
    """What one of the tensor's programs does: every so many blocks, to the words at `part`."""
    INF = float("inf")
    nothing = tl.full((), 0.0, tl.float64)
    finite, nans, above, below, zero, negative = nothing, nothing, nothing, nothing, nothing, nothing
    low, high = nothing + INF, nothing - INF
    mean, apart, sizes, squares = nothing, nothing, nothing, nothing
    scale = tl.full((), NOWHERE, tl.int32)
    for k in range(tl.cdiv(n, programs * BLOCK)):
        at = (k * programs + program).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        held = at < n
        raw = tl.load(x + _offset(at, n1, n2, n3, t0, t1, t2, t3, FLAT), mask=held, other=0)
        value = raw.to(tl.float64) if WIDE else raw.to(tl.float32)
        good = held & (tl.abs(value) < INF)
        some = tl.sum(good.to(tl.int32)).to(tl.float64)
        nans += tl.sum((held & (value != value)).to(tl.int32)).to(tl.float64)
        above += tl.sum((held & (value == INF)).to(tl.int32)).to(tl.float64)
        below += tl.sum((held & (value == -INF)).to(tl.int32)).to(tl.float64)
        zero += tl.sum((good & (value == 0)).to(tl.int32)).to(tl.float64)
        negative += tl.sum((good & (value < 0)).to(tl.int32)).to(tl.float64)
        least, most = tl.min(tl.where(good, value, INF)), tl.max(tl.where(good, value, -INF))
        low, high = tl.minimum(low, least.to(tl.float64)), tl.maximum(high, most.to(tl.float64))
        largest = tl.max(tl.where(good, tl.abs(value), 0.0))
        own = _exponent(largest, WIDE)
        # In two steps: the whole power may be out of range where its halves are not.
        half = own // 2
        unit = tl.where(good, value, 0.0) * _power(-half, WIDE) * _power(half - own, WIDE)
        middle = tl.sum(unit) / tl.maximum(some, 1.0).to(unit.dtype)
        distance = tl.where(good, unit - middle, 0.0)
        rest = tl.sum(distance).to(tl.float64)
        own_apart = tl.sum(distance * distance).to(tl.float64) - rest * rest / tl.maximum(some, 1.0)
        own_mean = middle.to(tl.float64) + rest / tl.maximum(some, 1.0)
        larger = tl.maximum(scale, tl.where(some > 0, own, NOWHERE))
        before, now = _power(scale - larger, True), _power(tl.where(some > 0, own, NOWHERE) - larger, True)
        mean, apart, sizes, squares = mean * before, apart * before * before, sizes * before, squares * before * before
        total = tl.maximum(finite + some, 1.0)
        gap = tl.where(some > 0, own_mean * now - mean, 0.0)
        mean += gap * some / total
        apart += own_apart * now * now + gap * gap * finite * some / total
        sizes += tl.sum(tl.abs(unit)).to(tl.float64) * now
        squares += tl.sum(unit * unit).to(tl.float64) * now * now
        finite += some
        scale = larger
    tl.store(part + 0, finite)
    tl.store(part + 1, nans)
    tl.store(part + 2, above)
    tl.store(part + 3, below)
    tl.store(part + 4, zero)
    tl.store(part + 5, negative)
    tl.store(part + 6, low)
    tl.store(part + 7, high)
    tl.store(part + 8, mean)
    tl.store(part + 9, apart)
    tl.store(part + 10, sizes)
    tl.store(part + 11, squares)
    tl.store(part + 12, scale.to(tl.float64))


@triton.jit
def _histogram(x, n, n1, n2, n3, t0, t1, t2, t3, into, WIDE: tl.constexpr, FLAT: tl.constexpr):
    at = tl.arange(0, SAMPLE).to(tl.int64) * tl.maximum(1, tl.cdiv(n, SAMPLE))
    held = at < n
    raw = tl.load(x + _offset(at, n1, n2, n3, t0, t1, t2, t3, FLAT), mask=held, other=0)
    value = raw.to(tl.float64) if WIDE else raw.to(tl.float32)
    size = tl.abs(value)
    counted = held & (size < float("inf")) & (size != 0)
    bin = tl.minimum(tl.maximum((_exponent(size, WIDE) + 40) >> 1, 0), BINS - 1)
    bin = tl.where(counted, bin, -1)
    which = tl.arange(0, BINS)
    counts = tl.sum((bin[:, None] == which[None, :]).to(tl.int32), axis=0)
    tl.store(into + which, counts.to(tl.int16))


@triton.jit
def digest_one(
    x, n, m1, m2, m3, u0, u1, u2, u3, n1, n2, n3, t0, t1, t2, t3, parts, spans, halves, slot, first,
    BLOCK: tl.constexpr, WIDE: tl.constexpr, DENSE: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """One tensor: m and u are its dimensions and strides in the order of memory, n and t in the order of its elements."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    _sum_up(x, n, m1, m2, m3, u0, u1, u2, u3, program, programs, parts + (first + program) * PART, BLOCK, WIDE, DENSE)
    if program == 0:
        _histogram(x, n, n1, n2, n3, t0, t1, t2, t3, halves + slot.to(tl.int64) * HALVES + EXPONENTS, WIDE, FLAT)
        tl.store(spans + slot * 2, first)
        tl.store(spans + slot * 2 + 1, programs)


@triton.jit
def digest_many(
    table, owners, parts, spans, halves, slot, first, ELEMENT: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr
):
    """Tensors without gaps. `table`: of each its address, size, first program and number of programs; `owners`: of each program its tensor."""
    program = tl.program_id(0)
    owner = tl.load(owners + program).to(tl.int64)
    x = tl.load(table + owner * 4).to(tl.pointer_type(ELEMENT))
    n = tl.load(table + owner * 4 + 1)
    begin = tl.load(table + owner * 4 + 2).to(tl.int32)
    programs = tl.load(table + owner * 4 + 3).to(tl.int32)
    part = parts + (first + program) * PART
    _sum_up(x, n, 1, 1, 1, 0, 0, 0, 1, program - begin, programs, part, BLOCK, WIDE, True)
    if program == begin:
        _histogram(x, n, 1, 1, 1, 0, 0, 0, 1, halves + (slot + owner) * HALVES + EXPONENTS, WIDE, True)
        tl.store(spans + (slot + owner) * 2, first + begin)
        tl.store(spans + (slot + owner) * 2 + 1, programs)


@triton.jit
def combine(parts, spans, whole, stats, MOST: tl.constexpr):
    """One program for each tensor: from what its programs left to a row, written through two views of the same memory."""
    slot = tl.program_id(0).to(tl.int64)
    first, programs = tl.load(spans + slot * 2), tl.load(spans + slot * 2 + 1)
    of = tl.arange(0, MOST)
    held = of < programs
    part = parts + (first + of).to(tl.int64) * PART
    INF = float("inf")
    finite = tl.load(part, mask=held, other=0.0)
    some = finite > 0
    scale = tl.load(part + 12, mask=held & some, other=NOWHERE).to(tl.int32)
    largest = tl.max(scale)
    power = tl.where(some, _power(tl.where(some, scale - largest, NOWHERE), True), 0.0)
    n = tl.sum(finite)
    safe = tl.maximum(n, 1.0)
    means = tl.load(part + 8, mask=held, other=0.0) * power
    mean = tl.sum(means * finite) / safe
    gap = tl.where(some, means - mean, 0.0)
    apart = tl.sum(tl.load(part + 9, mask=held, other=0.0) * power * power + finite * gap * gap)
    sizes = tl.sum(tl.load(part + 10, mask=held, other=0.0) * power)
    squares = tl.sum(tl.load(part + 11, mask=held, other=0.0) * power * power)
    low, high = (
        tl.min(tl.load(part + 6, mask=held, other=INF)) + 0.0,
        tl.max(tl.load(part + 7, mask=held, other=-INF)) + 0.0,
    )
    most = tl.maximum(tl.abs(low), tl.abs(high))
    half = tl.where(n > 0, largest, 0) // 2
    one, other = _power(half, True), _power(tl.where(n > 0, largest, 0) - half, True)
    same = low == high
    nowhere = n == 0
    NAN = float("nan")
    row = whole + slot * WORDS + COUNTS
    bad = 0
    for k in tl.static_range(1, 4):
        found = tl.sum(tl.load(part + k, mask=held, other=0.0)).to(tl.int64)
        bad += found
        tl.store(row + k, found)
    tl.store(row, n.to(tl.int64) + bad)
    tl.store(row + 4, tl.sum(tl.load(part + 4, mask=held, other=0.0)).to(tl.int64))
    tl.store(row + 5, tl.sum(tl.load(part + 5, mask=held, other=0.0)).to(tl.int64))
    into = stats + slot * WORDS + STATS
    tl.store(into, tl.where(nowhere, NAN, low))
    tl.store(into + 1, tl.where(nowhere, NAN, high))
    tl.store(into + 2, tl.where(nowhere, NAN, tl.where(same, low, mean * one * other)))
    spread = tl.sqrt(tl.maximum(apart, 0.0) / safe) * one * other
    tl.store(into + 3, tl.where(nowhere, NAN, tl.where(same, 0.0, spread)))
    tl.store(into + 4, tl.where(nowhere, NAN, most))
    tl.store(into + 5, tl.where(nowhere, NAN, tl.where(same, most, sizes / safe * one * other)))
    norm = tl.where(same, most * tl.sqrt(n), tl.sqrt(squares) * one * other)
    tl.store(into + 6, tl.where(nowhere, 0.0, norm))


_ELEMENTS = {
    "float64": tl.float64, "float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16,
    "int64": tl.int64, "int32": tl.int32, "int16": tl.int16, "int8": tl.int8,
    "uint64": tl.uint64, "uint32": tl.uint32, "uint16": tl.uint16, "uint8": tl.uint8,
}  # fmt: skip


def element(dtype: object) -> tl.dtype:
    """Of torch's dtype."""
    return _ELEMENTS[str(dtype).removeprefix("torch.")]
