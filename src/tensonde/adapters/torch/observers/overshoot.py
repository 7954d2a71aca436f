"""Whether updates go past the lowest point of their own line (`watch/overshoot.py`).

Of each parameter, some evenly spaced elements stand for all. They are copied before a step of the optimizer; before the next one, they and the
new gradient give the product. Tensors of a device are left alone: reading a number would wait for it.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from math import ceil, nan
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.state import RunState
from tensonde.watch.overshoot import Overshoot, Overshoots

PICKED = 1024
"""Elements of a parameter, at most."""
COST = 0.005
"""Part of the time between two steps that this may take."""

log = logging.getLogger("tensonde.session")


class _Picked(NamedTuple):
    step: int
    parameters: tuple[int, ...]
    values: Tensor
    gradients: Tensor
    weights: Tensor
    """How many others each element stands for."""


class OvershootObserver:
    """Belongs to the training thread."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._kept: dict[int, _Picked] = {}
        self._windows: dict[int, Overshoots] = {}
        self._found: tuple[int, Overshoot, float] | None = None
        self._next = 0
        self._last = perf_counter_ns()
        self._gap = self._cost = 0.0
        """Nanoseconds between two steps, and of a look: the latest count for a tenth."""

    def before_step(self, optimizer: Optimizer, closure: bool) -> None:
        """Gradients are complete, the optimizer has not stepped yet."""
        state = self._state
        if self._found is not None or closure or state.step < self._next:
            return
        began = perf_counter_ns()
        number = KNOWN.number(optimizer)
        kept = self._kept.pop(number, None)
        if kept is not None and kept.step == state.step - 1:
            self._gap = _smooth(self._gap, began - self._last)
        self._last = began
        now = _pick(optimizer, state.step)
        if now is None:
            return
        self._kept[number] = now
        if kept is not None and kept.step == now.step - 1 and kept.parameters == now.parameters:
            update = (now.values - kept.values) * now.weights
            rise, promise = float((update * now.gradients).sum()), -float((update * kept.gradients).sum())
            found = self._windows.setdefault(number, Overshoots()).add(now.step, rise, promise, state.loss)
            if found is not None:
                self._tell(number, found, optimizer)
            self._cost = _smooth(self._cost, perf_counter_ns() - began)
            every = ceil(self._cost / (COST * self._gap)) if self._gap else 1
            if every > 1:
                self._kept.clear()
                self._next = state.step + every

    def _tell(self, number: int, found: Overshoot, optimizer: Optimizer) -> None:
        rate = optimizer.param_groups[0].get("lr", nan)
        self._found = (number, found, float(rate))
        self._kept.clear()
        if not self._state.session.options.quiet:
            log.warning(
                "step %d: the last %d updates went too far (going on would raise the loss by %.0f %% each): with steps of this "
                "size the loss may spike or diverge soon; a smaller learning rate or a longer warm-up helps",
                found.step, found.updates, 100 * found.rise,
            )  # fmt: skip

    def facts(self, places: dict[int, int]) -> dict[str, Any] | None:
        if self._found is None:
            return None
        number, found, rate = self._found
        return {**asdict(found), "lr": rate, "optimizer": places.get(number)}


def _smooth(known: float, new: float) -> float:
    return new if not known else 0.9 * known + 0.1 * new


def _pick(optimizer: Optimizer, step: int) -> _Picked | None:
    values, gradients, strides, known = [], [], [], []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            if parameter.device.type != "cpu" or type(gradient) is not Tensor:
                return None
            if not _plain(parameter) or not _plain(gradient):
                continue
            stride = max(1, parameter.numel() // PICKED)
            values.append(parameter.detach().view(-1)[::stride])
            gradients.append(gradient.detach().view(-1)[::stride])
            strides.append(stride)
            known.append(id(parameter))
    if not values:
        return None
    lengths = torch.tensor([len(part) for part in values], device="cpu")
    weights = torch.repeat_interleave(torch.tensor(strides, dtype=torch.float32, device="cpu"), lengths)
    return _Picked(step, tuple(known), torch.cat(values).float(), torch.cat(gradients).float(), weights)


def _plain(tensor: Tensor) -> bool:
    return (
        tensor.layout is torch.strided and tensor.is_floating_point() and tensor.is_contiguous() and tensor.numel() > 0
    )
