"""Gradient clipping and loss scaling: what was clipped, when, and in which units."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.tensors import is_dense
from tensonde.program.lines import CodeLine, line_of

LOOKED_AT = 100


class Clipping:
    def __init__(self) -> None:
        self.calls = 0
        self.scaled = 0
        self.idle = 0
        self.norms: list[float] = []
        self.limit: float | None = None
        self.kind = ""
        self.scale: float | None = None
        self.place: CodeLine | None = None
        self.scaled_steps = 0
        self.steps_with_scaler = 0
        self.step_place: CodeLine | None = None
        self.in_scaler = False
        self.scaled_losses = 0
        self._scaler: weakref.ref[Any] | None = None

    def scaled_loss(self, scaler: Any) -> None:
        if scaler.is_enabled():
            self.scaled_losses += 1
            self._scaler = weakref.ref(scaler)

    def updated(self) -> None:
        self._scaler = None

    def _scaled_by(self) -> Tensor | None:
        """The scale that gradients still carry, None when they carry none."""
        scaler = self._scaler() if self._scaler is not None else None
        if scaler is None:
            return None
        for state in list(scaler._per_optimizer_states.values()):
            if state["stage"].value != 0:  # unscaled or stepped since the last update
                return None
        return scaler._scale if scaler._scale is not None else torch.tensor(float(scaler.get_scale()), device="cpu")

    def clipped(self, kind: str, limit: Any, total: Any, place: CodeLine | None, *, backward_since_step: bool) -> None:
        self.calls += 1
        if self.calls > LOOKED_AT:
            return
        self.kind, self.place = kind, place
        self.limit = float(limit)
        if is_dense(total) and total.numel() == 1 and not (READING.seldom(total) and self.calls % 16):
            READING.later([total], lambda norm: self.norms.append(float(norm)))
        scale = self._scaled_by()
        if scale is not None:
            READING.later([scale], self._clipped_scaled)
        if not backward_since_step:
            self.idle += 1

    def _clipped_scaled(self, scale: Tensor) -> None:
        if float(scale) != 1.0:
            self.scaled += 1
            self.scale = float(scale)

    def optimizer_steps(self, place: CodeLine | None) -> None:
        """An optimizer is about to step, not by its scaler."""
        if self._scaler is None or self.in_scaler or self.steps_with_scaler > LOOKED_AT:
            return
        self.steps_with_scaler += 1
        scale = self._scaled_by()
        if scale is not None:
            READING.later([scale], lambda scale: self._stepped_scaled(scale, place))

    def _stepped_scaled(self, scale: Tensor, place: CodeLine | None) -> None:
        if float(scale) != 1.0:
            self.scaled_steps += 1
            self.scale, self.step_place = float(scale), self.step_place or place

    def facts(self) -> dict[str, Any]:
        middle = sorted(self.norms)[len(self.norms) // 2] if self.norms else None
        return {
            "calls": self.calls,
            "looked_at": min(self.calls, LOOKED_AT),
            "kind": self.kind,
            "limit": self.limit,
            "median_norm": middle,
            "scaled": self.scaled,
            "scale": self.scale,
            "scaled_losses": self.scaled_losses,
            "without_backward": self.idle,
            "line": line_of(self.place),
            "steps_on_scaled_gradients": self.scaled_steps,
            "step_line": line_of(self.step_place),
            "scalers": [{"scale": s.get_scale(), "enabled": s.is_enabled()} for s in list(KNOWN.scalers)[:4]],
        }
