"""What Tensonde's Python costs around modules and gradients, beside the digests, which time themselves.

A module call or a gradient hook is too short to be timed every time. So some full steps are timed call by
call, the average stands for the others, and the autograd engine's price of a hook is measured once, on a
chain of one-element products. No random numbers are drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward

from tensonde.adapters.torch.seams.function_mode import unseen

TIMED_EVERY = 16
_CHAIN = 64
_TYPICAL_NS = 1500.0


class Accounting:
    def __init__(self, attach: Callable[[Tensor, Callable[[Any], None]], None]) -> None:
        self.timing = False
        """This step is timed call by call; never the first one, in which modules are named and sites made."""
        self.calls = self.hooks = 0
        """In this step so far."""
        self.enter_ns = self.leave_ns = 0
        """In this step, if it is timed, without what the digests count."""
        self._hook_ns = _hook_cost(attach)
        self._enter_each = self._leave_each = 0.0
        self._full_steps = 0

    def finish_step(self, *, full: bool, stopped: bool = False) -> int:
        """The cost of the step that ended, in nanoseconds; decides whether the next full one is timed. In one that `stopped`, calls took
        as long as somebody looked at it: the next is timed in its place."""
        if not full:
            return 0  # parts of a root pass with one look, and what is done at a root is timed where it is done
        calls = self.calls
        if self.timing and calls and not stopped:
            self._enter_each = self.enter_ns / calls
            self._leave_each = self.leave_ns / calls
        cost = calls * (self._enter_each + self._leave_each) + self.hooks * self._hook_ns
        if not stopped:
            self._full_steps += 1
            self.timing = self._full_steps % TIMED_EVERY in (1, 2)
        self.calls = self.hooks = self.enter_ns = self.leave_ns = 0
        return int(cost)


def _hook_cost(attach: Callable[[Tensor, Callable[[Any], None]], None]) -> float:
    def run(hooked: bool) -> int:
        value = torch.ones(1, requires_grad=True, device="cpu", dtype=torch.float32) * 1
        for _ in range(_CHAIN):
            value = value * 1
            if hooked:
                attach(value, _nothing)
        began = time.perf_counter_ns()
        _differentiate(value)
        return time.perf_counter_ns() - began

    try:
        with unseen(), torch.inference_mode(False), torch.enable_grad():
            run(True)
            return max(0.0, (min(run(True) for _ in range(5)) - min(run(False) for _ in range(5))) / _CHAIN)
    except RuntimeError:  # the training begins inside a function transform, where there is no backward pass
        return _TYPICAL_NS


def _differentiate(value: Tensor) -> None:
    """By the engine itself: wrappers of `torch.autograd.backward` (a callback's, the user's) must not count our passes."""
    _engine_run_backward(
        (value,), (torch.ones_like(value),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def _nothing(_: Any) -> None:
    return None
