"""What a training does without saying so: which network runs, which optimizer steps, what the loss is.

A plain loop says nothing about itself, and Hugging Face's Trainer tells its callbacks no loss. While `Seen` is on, it
notes the tensor that `backward` starts from (before a scaler scales it, and before a library divides it by the number of
micro-batches, where the program still holds that), the first module with trainable parameters that is called and the
first optimizer that steps. Nothing of the training changes. Tensonde's own backward passes do not come by here.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tensonde.session.division import before_division


class Seen:
    """Used with `with`. `losses` are those since the last `forget`, detached; `differentiated` are the same ones as `backward`
    got them, which may be divided.
    """

    def __init__(self) -> None:
        self.network: Any = None
        self.optimizer: Any = None
        self.losses: list[Any] = []
        self.differentiated: list[Any] = []
        self._handles: list[Any] = []
        self._unscaled: Any = None
        self._on = False

    @property
    def loss(self) -> Any:
        return self.losses[-1] if self.losses else None

    def forget(self) -> None:
        self.losses.clear()
        self.differentiated.clear()

    def __enter__(self) -> Seen:
        self._on = True
        self._backward, self._scale = torch.autograd.backward, torch.amp.GradScaler.scale
        torch.autograd.backward = self._our_backward = self._noting(self._backward)
        torch.amp.GradScaler.scale = self._our_scale = self._scaling(self._scale)
        self._handles = [register_optimizer_step_post_hook(self._stepped)]
        self._called = register_module_forward_pre_hook(self._module)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._on = False
        # Where someone has wrapped them since, theirs stays, and ours inside it passes on.
        if torch.autograd.backward is self._our_backward:
            torch.autograd.backward = self._backward
        if torch.amp.GradScaler.scale is self._our_scale:
            torch.amp.GradScaler.scale = self._scale
        for handle in [*self._handles, self._called]:
            handle.remove()
        self.forget()

    def _noting(self, original: Any) -> Any:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            first = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
            if self._on and isinstance(first, torch.Tensor) and first.numel() == 1:
                unscaled, self._unscaled = self._unscaled, None
                if unscaled is None:
                    unscaled = first.detach(), before_division(first, sys._getframe(1)).detach()
                self.differentiated.append(unscaled[0])
                self.losses.append(unscaled[1])
            return original(tensors, *args, **kwargs)

        return backward

    def _scaling(self, original: Any) -> Any:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            if self._on and isinstance(outputs, torch.Tensor):
                self._unscaled = outputs.detach(), before_division(outputs, sys._getframe(1)).detach()
            return original(scaler, outputs)

        return scale

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.optimizer is None:
            self.optimizer = optimizer

    def _module(self, module: Any, args: Any) -> None:
        """A global hook makes every call slower, and keeps compiled modules from compiling: off at the first that fits."""
        if any(parameter.requires_grad for parameter in module.parameters()):
            self.network = module
            self._called.remove()
