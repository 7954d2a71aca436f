"""Block and Tap in pure Python over the numpy reference: the C kernel's interface, many times slower.

It reads tensors by duck typing only, so that this layer imports no framework. The interface: see `kernel.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import DTYPES, ROW
from tensonde.digest.reference import digest_array, digest_difference

Array = NDArray[Any]


class _View(NamedTuple):
    array: Array
    dtype: str


def _view(tensor: Any) -> _View | None:
    """The tensor's memory as a numpy array, or None if it cannot be digested."""
    try:
        if isinstance(tensor, np.ndarray):
            array, name = tensor, tensor.dtype.name
        elif not hasattr(tensor, "detach") or tensor.device.type != "cpu" or not _has_memory(tensor):
            return None
        else:
            plain = tensor.detach().resolve_conj().resolve_neg()
            name = str(plain.dtype).removeprefix("torch.")
            if name == "bfloat16":
                plain = plain.view(_sibling(plain.dtype, "int16"))
            elif name.startswith("float8"):
                plain = plain.view(_sibling(plain.dtype, "uint8"))
            array = plain.numpy().view(np.uint16) if name == "bfloat16" else plain.numpy()
    except Exception:  # an odd tensor may raise anything, and must not break the training
        return None
    return _View(array, name) if name in DTYPES else None


def _alike(a: _View, b: _View) -> bool:
    return a.dtype == b.dtype and a.array.shape == b.array.shape and "complex" not in a.dtype


def _has_memory(tensor: Any) -> bool:
    return bool(tensor.numel() == 0 or tensor.data_ptr() != 0)


def _sibling(dtype: Any, name: str) -> Any:
    """Another dtype of the framework that `dtype` belongs to."""
    return getattr(sys.modules[type(dtype).__module__], name)


class Block(bytearray):
    """See `kernel.py`. A bytearray, because before Python 3.12 only C types can offer a buffer."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a Block needs a capacity of at least 1 row, got {capacity}")
        super().__init__(capacity * ROW.itemsize)
        self.capacity = capacity
        self.step = self.phase = self.nanos = self.skipped = self.dropped = 0
        self.threads = 1
        self.on_nonfinite: Callable[[int, int, Any], object] | None = None
        self.on_full: Callable[[], object] | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def clear(self) -> None:
        self._length = 0

    def add(self, site: int, tensor: object, /, call: int = 0) -> int:
        start = time.monotonic_ns()
        view = _view(tensor)
        if view is None:
            self.skipped += 1
            index = -1
        else:
            index = self._append(site, call, digest_array(*view), tensor)
        self.nanos += time.monotonic_ns() - start
        return index

    def add_difference(self, site: int, new: object, old: object, /, call: int = 0) -> int:
        start = time.monotonic_ns()
        a, b = _view(new), _view(old)
        if a is None or b is None or not _alike(a, b):
            self.skipped += 1
            index = -1
        else:
            index = self._append(site, call, digest_difference(a.array, b.array, a.dtype), new)
        self.nanos += time.monotonic_ns() - start
        return index

    def add_many(self, sites: Sequence[int], tensors: Sequence[object], call: int = 0, /) -> int:
        if len(sites) != len(tensors):
            raise ValueError(f"Block.add_many got {len(sites)} sites for {len(tensors)} tensors")
        pairs = [(site, tensor) for site, tensor in zip(sites, tensors, strict=True) if tensor is not None]
        return sum(self.add(site, tensor, call) >= 0 for site, tensor in pairs)

    def reserve(self, site: int, /, call: int = 0) -> int:
        return self._append(site, call, digest_array(np.zeros(0)), None)

    def tap(self, site: int, /, call: int = 0) -> Tap:
        return Tap(self, site, call)

    def _append(self, site: int, call: int, row: Array, tensor: object) -> int:
        if self._length == self.capacity and self.on_full is not None:
            self._call_back(self.on_full)
        if self._length == self.capacity:
            self.dropped += 1
            return -1
        index = self._length
        row["step"], row["phase"], row["site"], row["call"] = self.step, self.phase, site, call
        np.frombuffer(self, ROW)[index] = row[0]
        self._length += 1
        bad = row["nan"][0] or row["pos_inf"][0] or row["neg_inf"][0]
        if bad and self.on_nonfinite is not None:
            self._call_back(self.on_nonfinite, site, index, tensor)
        return index

    def _call_back(self, callback: Callable[..., object], *arguments: object) -> None:
        """What a callback takes is not the digest's time: a debugger may be waiting in it."""
        start = time.monotonic_ns()
        try:
            callback(*arguments)
        finally:
            self.nanos -= time.monotonic_ns() - start


class Tap:
    """Adds its site's tensor to a block; made by `Block.tap`."""

    def __init__(self, block: Block, site: int, call: int) -> None:
        self.block = block
        self.site = site
        self.call = call

    def __call__(self, tensor: object, /, *_: object) -> None:
        try:
            self.block.add(self.site, tensor, self.call)
        except Exception as problem:
            report = SimpleNamespace(
                exc_type=type(problem),
                exc_value=problem,
                exc_traceback=problem.__traceback__,
                err_msg=None,
                object=self,
            )
            sys.unraisablehook(cast(Any, report))
