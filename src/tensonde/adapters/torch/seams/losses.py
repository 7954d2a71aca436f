"""Backward passes: the phase is backward meanwhile, and what is differentiated is a loss."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.stages import STAGES
from tensonde.adapters.torch.seams.function_mode import traced_by_compiler, unseen
from tensonde.adapters.torch.seams.lifted import PATCHES, Patch
from tensonde.model.moment import Phase
from tensonde.program.frames import user_place

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

Current = Callable[[], "Watcher | None"]


def observe_backward(begun: Current) -> None:
    """Once in a process. `begun` gives the adapter, and begins to watch where that is yet to be done."""
    backward, grad = torch.autograd.backward, torch.autograd.grad
    PATCHES.add(
        Patch(torch.autograd, "backward", _observing(backward, begun, losses=True), "see losses and backward passes"),
        losses=True,
    )
    PATCHES.add(Patch(torch.autograd, "grad", _observing(grad, begun, losses=False), "see backward passes"))


def _observing(original: Callable[..., Any], begun: Current, *, losses: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or traced_by_compiler():
            return original(*args, **kwargs)
        watcher = begun()
        if watcher is None or watcher.rest.asleep:
            return original(*args, **kwargs)
        if watcher.state.thread != get_ident():
            KNOWN.crowded = True
            return original(*args, **kwargs)
        before = watcher.state.phase
        try:
            with unseen():
                _begins(watcher, before, args, kwargs, losses=losses)
        except Exception as problem:
            watcher.session.guard.contain("observing a loss", problem)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                with unseen():
                    watcher.backward_ends(before)
            except Exception as problem:
                watcher.session.guard.contain("ending a backward pass", problem)

    return observed


def _begins(watcher: Watcher, before: Phase, args: Any, kwargs: Any, *, losses: bool) -> None:
    given = args[0] if args and losses else kwargs.get("tensors") if losses else ()
    if losses and watcher.session.world > 1:
        gradients = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        STAGES.backward(given, gradients, user_place(sys._getframe(2)))
    watcher.backward_begins(given, accumulates=losses)
    if losses and before is not Phase.BACKWARD:
        watcher.state.set_phase(before)
        watcher.replay.loss(given, args[1] if len(args) > 1 else kwargs.get("grad_tensors"))
        watcher.state.set_phase(Phase.BACKWARD)
