"""A tensor in a stopped training, read part by part through its agent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensonde.errors import UsageError
from tensonde.server.live import LiveRank
from tensonde.server.refusals import Refusal

Array = np.ndarray[Any, Any]
MOST_BYTES = 4 << 20


class LiveTensor:
    """Not in the event loop's thread. Reads raise Refusal where the training is gone or runs again."""

    def __init__(self, live: LiveRank, address: str, *, before: bool = False) -> None:
        self._live, self._before = live, before
        try:
            facts = live.ask_now("shape", address=address, before=before).result
        except Refusal as problem:  # the way there is the page's to show, not a command of the terminal
            raise type(problem)(str(problem).partition("; run on to it with ")[0].rstrip(".") + ".") from None
        self.address, self.note = address, ""
        self.shape, self.dtype = tuple(facts["shape"]), str(facts["dtype"])
        self.step: int | None = None
        self.read(tuple(0 if size else slice(0, 0) for size in self.shape))  # tells the step, and what is worth knowing

    def read(self, index: tuple[Any, ...]) -> Array:
        shape = _shape_of(index, self.shape)
        if math.prod(shape) * 8 <= MOST_BYTES or not shape:
            return self._part(index)
        return self._in_pieces(index, shape)

    def _in_pieces(self, index: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
        """Along the first free dimension."""
        whole = [*index, *(slice(None) for _ in range(len(self.shape) - len(index)))]
        at = next(k for k, part in enumerate(whole) if isinstance(part, slice))
        span = range(*whole[at].indices(self.shape[at]))
        rows = max(1, MOST_BYTES // max(8 * math.prod(shape[1:]), 1))
        if 8 * math.prod(shape[1:]) > 4 * MOST_BYTES and len(shape) > 1 and rows == 1:
            parts = [self.read((*whole[:at], k, *whole[at + 1 :])) for k in span]
            return np.stack(parts)
        found = []
        for k in range(0, len(span), rows):
            some = span[k : k + rows]
            whole[at] = slice(some.start, some.stop, some.step)
            found.append(self._part(tuple(whole)))
        return np.concatenate(found)

    def _part(self, index: tuple[Any, ...]) -> Array:
        wire = [[part.start, part.stop, part.step] if isinstance(part, slice) else int(part) for part in index]
        reply = self._live.ask_now("tensor", address=self.address, before=self._before, index=wire)
        facts = reply.result
        try:
            array: Array = np.frombuffer(reply.content, np.dtype(facts["numpy"])).reshape(facts["shape"])
        except (ValueError, TypeError, KeyError) as problem:
            raise UsageError(f"{self.address} came in a form that cannot be read: {problem}.") from None
        self.step, self.note = facts.get("step"), str(facts.get("note", ""))
        return array


def _shape_of(index: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    free = [
        len(range(*part.indices(size))) for part, size in zip(index, shape, strict=False) if isinstance(part, slice)
    ]
    return (*free, *shape[len(index) :])
