"""A forward and a backward pass that take no memory: with torch's fake tensors, which have shapes and no values.

What a model whose memory has run out would take with a smaller batch can be found out where nothing more fits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from tensonde.adapters.torch.memory.ledger import Ledger
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.undisturbed import restored, unheard
from tensonde.adapters.torch.seams.current import suspended
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.moment import Phase


class NotImagined(Exception):
    """The pass needs values, or could not be undone; says why."""


def imagined(
    module: nn.Module, args: Any, kwargs: Any, batch: int, wanted: int, name_of: Callable[[nn.Module], tuple[str, str]]
) -> Ledger:
    """The passes with `wanted` of the `batch` samples. Raises `NotImagined`."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise NotImagined("other ranks would have to take part")
    before = Before([module, args, kwargs], tensors=False)
    if before.trouble:
        raise NotImagined(before.trouble)
    ledger = Ledger(name_of, boundary=_run.__code__)
    with suspended(), unheard(), restored(before, []):
        try:
            copy_context().run(_run, ledger, module, args, kwargs, batch, wanted)
        except Exception as problem:
            raise NotImagined(f"{type(problem).__name__}: {problem}"[:200]) from None
    if ledger.failed is not None:
        raise NotImagined(str(ledger.failed))
    return ledger


def _run(ledger: Ledger, module: nn.Module, args: Any, kwargs: Any, batch: int, wanted: int) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    phase = Phase.FORWARD
    ledger.phase = lambda: phase
    with mode:
        own = {name: _fake(part, mode) for name, part in (*module.named_parameters(), *module.named_buffers())}
        given, named = (_shrunk(value, mode, batch, wanted) for value in (args, kwargs))
        with ledger:
            out = functional_call(module, own, given, named, strict=False)
            sums = [t.sum() for t in tensors_in(out) if t.requires_grad and t.is_floating_point()]
            leaves = [part for part in own.values() if part.requires_grad]
            phase = Phase.BACKWARD
            if sums and leaves:
                torch.autograd.grad(sums, leaves, allow_unused=True)


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    """A leaf, so that nothing of the program's own graph is gone through."""
    return mode.from_tensor(tensor.detach()).requires_grad_(tensor.requires_grad)


def _shrunk(value: Any, mode: FakeTensorMode, batch: int, wanted: int) -> Any:
    if isinstance(value, Tensor):
        fake = _fake(value, mode)
        for k in (0, 1):
            if fake.dim() > k and fake.shape[k] == batch:
                fake = fake.detach().narrow(k, 0, wanted).clone().requires_grad_(value.requires_grad)
                break
        return fake
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_shrunk(item, mode, batch, wanted) for item in value])
    if kind is dict:
        return {name: _shrunk(item, mode, batch, wanted) for name, item in value.items()}
    return value
