"""Clipping of gradients by their global norm, and losses that are scaled: to what, from what, and where."""

from __future__ import annotations

import statistics
import sys
import weakref
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np
from mindspore import amp

from tensonde.adapters.mindspore.observers.origins import KNOWN, plain_number
from tensonde.adapters.mindspore.tensors import tensors_in, values_of
from tensonde.program.frames import is_user, user_place
from tensonde.program.lines import CodeLine, line_of

KIND = "clip_by_global_norm"
CELL = "_ClipByGlobalNorm"
"""The class that the function makes one of at every call."""
FIRST = 4
"""Calls whose norm is computed; then those whose number is a power of two."""
A_SCALE = 16.0
"""The least that is no weight of the loss."""


class Clipping:
    def __init__(self) -> None:
        self._calls = 0
        self._norms: list[float] = []
        self._limit: float | None = None
        self._place: CodeLine | None = None
        self._steps = self._on_scaled = 0
        self._scale: float | None = None
        self._step_place: CodeLine | None = None
        self._made: dict[str, Any] | None = None
        self._unclipped: list[weakref.ref[Any]] = []
        self._idle = self._effective = 0
        """Steps after a call with what it was given, and with something else."""
        self.seed: Any = None
        """What the last backward pass began with; None for ones."""

    def clipped(self, cell: Any, args: tuple[Any, ...]) -> None:
        """Called by the training thread before `cell` clips."""
        self._calls += 1
        if self._calls > FIRST and self._calls & (self._calls - 1):
            return
        given = tensors_in(args)
        self._unclipped = [weakref.ref(tensor) for tensor in given]
        arrays = [values for tensor in given if (values := values_of(tensor)) is not None]
        self._norms.append(float(np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays))))
        limit = plain_number(getattr(cell, "clip_norm", None))
        self._limit = limit if isinstance(limit, float) else self._limit
        self._place = self._place or user_place(sys._getframe(2))

    def optimizer_steps(self, optimizer: Any, loss: Any, gradients: Sequence[Any], raw: Sequence[Any]) -> None:
        """Called before the optimizer steps on `gradients`; `raw` is what the backward pass of `loss` gave. Those that were scaled back, or changed in another way,
        are other tensors. That a scaled loss was differentiated shows where the program returns the loss itself beside it, or by the seed of the pass, which
        an optimizer with the same `loss_scale` takes off again."""
        self._steps += 1
        seed, self.seed = self.seed, None
        if self._unclipped:
            unclipped, self._unclipped = {id(ref()) for ref in self._unclipped if ref() is not None}, []
            idle = any(id(gradient) in unclipped for gradient in gradients)
            self._idle, self._effective = self._idle + idle, self._effective + (not idle)
        if self._steps > FIRST or not gradients or set(map(id, raw)).isdisjoint(map(id, gradients)):
            return
        left = _left_of(seed, optimizer)
        if left is not None and left >= A_SCALE:
            self._on_scaled += 1
            self._scale, self._made = left, KNOWN.made.line(optimizer)
            return
        given = [
            values for tensor in tensors_in(loss) if (values := values_of(tensor)) is not None and values.size == 1
        ]
        place = user_place(sys._getframe(2))
        scale = _scale_at(sys._getframe(2)) if len(given) > 1 else None
        if scale is None or scale <= 1:
            return
        scaled, *others = (float(values.reshape(-1)[0]) for values in given)
        if any(one != 0 and abs(scaled / one - scale) <= 1e-3 * scale for one in others):
            self._on_scaled += 1
            self._scale, self._step_place = scale, self._step_place or place

    def facts(self) -> dict[str, Any]:
        scaled = {
            "steps_on_scaled_gradients": self._on_scaled,
            "scale": self._scale,
            "step_line": self._made or line_of(self._step_place),
        }
        if not self._calls:
            return scaled
        return {
            **scaled,
            "calls": self._calls,
            "looked_at": len(self._norms),
            "without_backward": len(self._norms) if self._idle >= FIRST and not self._effective else 0,
            "kind": KIND,
            "limit": self._limit,
            "median_norm": statistics.median(self._norms),
            "line": line_of(self._place),
        }


def _left_of(seed: Any, optimizer: Any) -> float | None:
    """The scale that gradients still have after the optimizer has divided by its own."""
    values = values_of(seed)
    own = plain_number(getattr(optimizer, "loss_scale", 1.0))
    if values is None or not values.size or values.min() != values.max() or not isinstance(own, int | float) or not own:
        return None
    return float(values.reshape(-1)[0]) / own


def _scale_at(frame: FrameType | None) -> float | None:
    """The scale of the first scaler of losses among the variables of the program's frames."""
    while frame is not None:
        if is_user(frame.f_code):
            for held in (*frame.f_locals.values(), *frame.f_globals.values()):
                if isinstance(held, amp.LossScaler):
                    scale = plain_number(getattr(held, "scale_value", None))
                    return float(scale) if isinstance(scale, int | float) else None
        frame = frame.f_back
    return None
