"""Chooses who computes digests: the C kernel, or numpy where the kernel is missing.

`TENSONDE_KERNEL=off` chooses numpy. Both have one interface, described here once:

`Block(capacity)` is an append-only buffer of ROWs. `rows_of(block)` shows it without a copy.
- `add(site, tensor, call=0)` returns the row's index, or -1 (counted in `skipped`) for what it cannot digest:
  not on the CPU, sparse, quantized, without memory, of unknown dtype, no tensor. Odd tensors never raise.
- `add_difference(site, new, old, call=0)` is the digest of new - old (real dtypes, one shape, one dtype).
- `add_many(sites, tensors, call=0)` adds all but the None and returns how many rows it added.
- `reserve(site, call=0)` adds a row to be filled later.
- `tap(site, call=0)` is a callable of one tensor that adds it, returns None and never raises.
- `step` and `phase` are stamped on each added row; `nanos` is the time spent adding, callbacks
  included.
- `on_nonfinite(site, index, tensor)` is called right after a row with NaN or Inf was added.
- `on_full()` is called when there is no room, and is expected to `clear()`; a row for which there is
  no room even so is counted in `dropped`, and its index is -1.
What a callback raises comes out of the method that called it; a tap reports it to `sys.unraisablehook`.

Threads: one at a time may call a method; the GIL is released inside while a large tensor is reduced, by `threads` threads: the framework's own where it has OpenMP.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import ROW

if TYPE_CHECKING:
    from tensonde.digest._kernel import Block, Tap, isa
    from tensonde.digest._kernel import pair as _pair
    from tensonde.digest._kernel import sketch as _sketch
else:
    try:
        if os.environ.get("TENSONDE_KERNEL") == "off":
            raise ImportError("TENSONDE_KERNEL=off")
        from tensonde.digest._kernel import Block, Tap, isa
        from tensonde.digest._kernel import pair as _pair
        from tensonde.digest._kernel import sketch as _sketch
    except ImportError as problem:
        from tensonde.digest.fallback import Block, Tap

        _pair = _sketch = None
        logging.getLogger("tensonde.digest").warning(
            "digests are computed by numpy, many times slower than the C kernel (%s); "
            "reinstall tensonde where a C compiler is found, or unset TENSONDE_KERNEL",
            problem,
        )

        def isa() -> str:
            return "numpy"


PAIRED = ("float32", "float64", "bfloat16")


def pair(a: Any, b: Any, dtype: str) -> tuple[float, float, float, float, float, int, bool] | None:
    """Of two contiguous buffers of a dtype in PAIRED, one length and natural alignment: the sums of (a-b)², a², b², ab, the
    largest |a-b| and distance in ULP, and whether anything is not finite (then nothing else is to be believed).
    None where there is no kernel."""
    return _pair(a, b, dtype) if _pair is not None else None


def sketch(tensor: Any, signs: bytes) -> tuple[float, ...] | None:
    """Scalar products of a real tensor with eight vectors of signs: a byte of `signs` per position, a bit per vector. See
    `adapters/signs.py`. None where the tensor cannot be read, or there is no kernel."""
    return _sketch(tensor, signs) if _sketch is not None else None


def kernel_name() -> str:
    """What computes digests here: avx512, avx2, baseline, neon, vector, or numpy."""
    return isa()


def rows_of(block: Block) -> NDArray[Any]:
    """The rows of a block, as many as it holds, without a copy: good until its next `clear`."""
    rows: NDArray[Any] = np.frombuffer(memoryview(block), ROW)
    return rows[: len(block)]


__all__ = ["PAIRED", "Block", "Tap", "kernel_name", "pair", "rows_of", "sketch"]
