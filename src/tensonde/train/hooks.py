"""Gradient hooks: on a tensor, as an identity in the forward pass, on a module; to look, or to change.

Each is noted in the recording when it first sees a gradient, with the line that placed it and whether it changes
gradients, and again when it is removed: a forgotten one is visible (`tensonde diagnose`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from tensonde.errors import UsageError


class Hook:
    """One hook that was placed. `remove` takes it away; doing so twice is harmless."""

    def __init__(self, kind: str, on: str, fn: Callable[..., Any], where: tuple[str, int]) -> None:
        if not callable(fn):
            raise UsageError(f"a hook is a function, and {fn!r} was given.")
        self.kind, self.on, self.fn, self.where = kind, on, fn, where
        self.changes = False
        self._told: bool | None = None
        self._handle: Any = None
        self._removed = False

    def remove(self) -> None:
        if not self._removed:
            self._removed = True
            if self._handle is not None:
                self._handle.remove()
            if self._told is not None:
                _note("hook_removed", kind_of_hook=self.kind, on=self.on, file=self.where[0], line=self.where[1])

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.remove()

    def seen(self, changed: bool) -> None:
        """A gradient came by."""
        self.changes = self.changes or changed
        if self._told is not self.changes:
            self._told = self.changes
            name = getattr(self.fn, "__name__", type(self.fn).__name__)
            _note(
                "hook", kind_of_hook=self.kind, on=self.on, function=name, changes=self.changes, file=self.where[0],
                line=self.where[1],
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"<hook {self.kind} on {self.on}, {self.where[0]}:{self.where[1]}>"


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a graph break, where the tensor can be had
def hook(tensor: Any, fn: Callable[[Any], Any]) -> Hook:
    """Calls `fn(gradient)` when the gradient of this tensor is known; what it returns, unless None, takes its place."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"tensonde.hook takes a tensor, and {type(tensor).__name__} was given.")
    if not tensor.requires_grad:
        raise UsageError(
            "tensonde.hook was given a tensor that needs no gradient; set requires_grad, or hook a later one."
        )
    kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "tensor"
    placed = Hook(kind, f"{kind} {tuple(tensor.shape)}", fn, _caller())
    placed._handle = tensor.register_hook(_looking(placed))
    return placed


def hook_backward(module: Any, fn: Callable[[Any, Any, Any], Any]) -> Hook:
    """Calls `fn(module, grad_input, grad_output)` in the module's backward pass, both tuples; what it returns, unless
    None, takes the place of grad_input.
    """
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"tensonde.hook_backward takes a module, and {type(module).__name__} was given.")
    placed = Hook("module", type(module).__name__, fn, _caller())

    def looking(module: Any, grad_input: Any, grad_output: Any) -> Any:
        given = fn(module, grad_input, grad_output)
        placed.seen(given is not None and given is not grad_input)
        return given

    placed._handle = module.register_full_backward_hook(looking)
    return placed


class HookBackward:
    """An identity to be placed in the forward pass: `z = look(z)`. Its backward pass calls `fn(gradient)`; what that
    returns, unless None, takes the gradient's place. Works in compiled code, too, without a graph break.
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.placed = Hook("identity", "HookBackward", fn, _caller())
        self._look = _looking(self.placed)
        self.key = len(_KEPT)
        self.removed = False
        _KEPT.append(self._look)
        _operators()

    def remove(self) -> None:
        """From now on it does nothing."""
        self.removed = True
        self.placed.remove()

    def __call__(self, *tensors: Any) -> Any:
        found = tuple(self._through(tensor) for tensor in tensors)
        return found[0] if len(found) == 1 else found

    def _through(self, tensor: Any) -> Any:
        if self.removed or not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
            return tensor
        if torch.compiler.is_compiling():
            return torch.ops.tensonde.hook_identity(tensor, self.key)
        same = tensor.view_as(tensor)  # a tensor of its own: only what flows back through here is seen
        same.register_hook(self._look)
        return same


def _looking(placed: Hook) -> Callable[[Any], Any]:
    def looking(gradient: Any) -> Any:
        given = placed.fn(gradient)
        placed.seen(given is not None and given is not gradient)
        return given

    return looking


_KEPT: list[Callable[[Any], Any]] = []
"""What compiled code calls, by number: a graph can hold a number, not a function."""
_defined = False


def _operators() -> None:
    """Two operators that a compiler leaves alone: the identity, and its gradient, which is where Python is called."""
    global _defined
    if _defined:
        return
    _defined = True

    def identity(x: torch.Tensor, key: int) -> torch.Tensor:
        return x.clone()

    def gradient(grad: torch.Tensor, key: int) -> torch.Tensor:
        given = _KEPT[key](grad)
        return grad.clone() if given is None or given is grad else given.clone()

    # Schemas in words: the annotations of functions in here are strings, which custom_op does not read.
    forward = torch.library.custom_op(
        "tensonde::hook_identity", identity, mutates_args=(), schema="(Tensor x, int key) -> Tensor"
    )
    backward = torch.library.custom_op(
        "tensonde::hook_gradient", gradient, mutates_args=(), schema="(Tensor grad, int key) -> Tensor"
    )
    forward.register_fake(lambda x, key: torch.empty_like(x))
    backward.register_fake(lambda grad, key: torch.empty_like(grad))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.key = inputs[1]

    def flow(ctx: Any, grad: Any) -> Any:
        return torch.ops.tensonde.hook_gradient(grad, ctx.key), None

    forward.register_autograd(flow, setup_context=keep)


_OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.dirname(torch.__file__) + os.sep, "<frozen")


def _caller() -> tuple[str, int]:
    """The nearest line that is neither ours nor torch's."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return "", 0
    path = os.path.relpath(frame.f_code.co_filename)
    return (frame.f_code.co_filename if path.startswith("..") else path), frame.f_lineno


def _note(kind: str, **fields: Any) -> None:
    from tensonde.api import current

    training = current()
    if training is not None:
        training.session.note(kind, **fields)
