"""Executes a tape in order under trace, forward and backward; no `.grad` is written.

The same for the tape of the step that runs now and for one that came out of a bundle.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.randomness import put_device_states
from tensonde.adapters.torch.replay.call import Slot, TapedCall, given_by
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.tensors import tensors_in, values_of
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.model.moment import Phase

Losses = list[tuple[Slot, Slot, Any]]


@dataclass
class Outcome:
    """What came out: the value of each slot, and for each loss the leaves of its graph with their gradients."""

    values: dict[Slot, Tensor] = field(default_factory=dict)
    gradients: list[list[tuple[Tensor, Tensor]]] = field(default_factory=list)
    bad_gradient: bool = False


class Reenactment:
    """Runs once. Belongs to the training thread."""

    def __init__(self, state: RunState, entries: list[TapedCall], losses: Losses) -> None:
        self.state = state
        self.entries = entries
        self.losses = losses
        self.tracer = Tracer(state, boundary=execute.__code__)

    def run(self, wanted: Slot | None) -> Outcome:
        """Up to where the slot `wanted` has its value, or to the end. Raises whatever the user's code raises."""
        outcome, tracer = Outcome(), self.tracer
        tracer.begin()
        try:
            for entry in self.entries:
                tracer.outside = entry.where(self.state)
                outcome.values |= execute(entry, outcome.values)
                if wanted is not None and wanted in outcome.values:
                    break
        finally:
            tracer.pause()
        if wanted is not None:
            tracer.differentiated(outcome.values[wanted])
        for scaled, plain, gradient in self.losses:
            if scaled in outcome.values:
                tracer.differentiated(outcome.values[plain if plain in outcome.values else scaled])
                self._differentiate(outcome, outcome.values[scaled], gradient)
        return outcome

    def _differentiate(self, outcome: Outcome, loss: Tensor, gradient: Any) -> None:
        leaves = self.leaves()
        if not loss.requires_grad or not leaves:
            return
        seed = gradient if isinstance(gradient, Tensor) else None
        self.state.phase = Phase.BACKWARD
        try:
            found = torch.autograd.grad(loss, leaves, grad_outputs=seed, retain_graph=True, allow_unused=True)
        except RuntimeError as problem:  # reentrant checkpointing, for one, does not allow it
            self.tracer.notes.append(f"the backward pass could not be run again: {problem}"[:300])
            return
        finally:
            self.state.phase = Phase.FORWARD
        pairs = [(leaf, made) for leaf, made in zip(leaves, found, strict=True) if made is not None]
        outcome.gradients.append(pairs)
        outcome.bad_gradient |= any(not bool(torch.isfinite(dense(made)).all()) for _, made in pairs)

    def leaves(self) -> list[Tensor]:
        """What gradients are asked for: the parameters of the modules, and what else the calls were given."""
        leaves: dict[int, Tensor] = {}
        for entry in self.entries:
            if isinstance(entry.call, nn.Module):
                leaves |= {id(p): p for p in entry.call.parameters() if p.requires_grad}
            for tensor in tensors_in((entry.args, entry.kwargs)):
                if tensor.requires_grad and tensor.is_leaf:
                    leaves[id(tensor)] = tensor
        return list(leaves.values())


def _plainly(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return call(*args, **kwargs)


def execute(
    entry: TapedCall, values: dict[Slot, Tensor], through: Callable[[Callable[..., Any], Any, Any], Any] = _plainly
) -> dict[Slot, Tensor]:
    """One call, with the values of this time in the place of those of then. A boundary in the stack: see `Tracer`."""
    if entry.random is not None:
        torch.default_generator.set_state(entry.random)
        put_device_states(entry.device_random)
    if entry.python is not None:
        random.setstate(entry.python)
    for buffer, content in entry.buffers:
        buffer.copy_(content)
    args, kwargs = put(entry.args, values), put(entry.kwargs, values)
    call = entry.call
    if type(call).__name__ in ("DistributedDataParallel", "DataParallel"):
        call = call.module
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(entry.grad))
        for device, dtype in entry.autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        out = through(call, args, kwargs)
    return dict(zip(entry.outputs, given_by(out) if isinstance(call, nn.Module) else tensors_in(out), strict=False))


def put(value: Any, values: dict[Slot, Tensor]) -> Any:
    """`value` with the slots filled."""
    if isinstance(value, Slot):
        return values[value]
    if isinstance(value, Tensor):
        if value.grad_fn is not None:  # of an earlier step: its graph may be gone
            return value.detach().requires_grad_()
        return value
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([put(item, values) for item in value])
    if kind is dict:
        return {name: put(item, values) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return tuple.__new__(kind, [put(item, values) for item in value])
    return value


def dense(tensor: Tensor) -> Tensor:
    """Its values, to compare them; the tensor itself where it has none."""
    found = values_of(tensor)
    return tensor if found is None else found


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit, but for what a NaN carries."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a.isnan() & b.isnan())).all())
