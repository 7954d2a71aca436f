"""Optimizers and the scaler: where gradients and parameters are looked at, and where a step of the training ends."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.charged import charged
from tensonde.adapters.torch.run.closures import has_closure, observed_closure
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.lifted import PATCHES
from tensonde.adapters.torch.seams.notes import gradients_cleared, loss_scaled, made
from tensonde.adapters.torch.wrappers import optimizer_behind
from tensonde.model.moment import Phase

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager

Current = Callable[[], "Eager | None"]

known_optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def observe_optimizers(current: Current, begun: Current) -> None:
    """Once in a process. `current` gives the adapter; `begun` also begins to watch where that is yet to be done."""

    # A compiled step contains its hooks: there they are transparent, and `ByHand` notices that parameters change.
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if is_dynamo_compiling() or PATCHES.asleep:
            return None
        eager = begun()
        if eager is None:
            return None
        if eager.thread != get_ident():
            KNOWN.elsewhere.add(KNOWN.number(optimizer))
            return None
        with unseen():
            _before(eager, optimizer, args, kwargs)
        return observed_closure(eager, optimizer, args, kwargs) if has_closure(args, kwargs) else None

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_dynamo_compiling():
            return
        if PATCHES.asleep:
            PATCHES.count(optimizer)
            return
        eager = current()
        if eager is not None and eager.thread == get_ident():
            with unseen():
                _after(eager, optimizer, args, kwargs)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    _wrap_init(current)
    _wrap_zero_grad(current)
    _wrap_scaler(current)


def note_optimizer(optimizer: Optimizer, eager: Eager | None) -> None:
    """It was just made, or handed over by the script."""
    known_optimizers.add(optimizer)
    made(optimizer)
    if eager is not None:
        expect(eager, optimizer)
        if eager.thread == get_ident():
            eager.replay.tracing.stage_begins()
            eager.rest.end()


def catch_up(eager: Eager) -> None:
    """The training begins: these optimizers were made before."""
    for optimizer in list(known_optimizers):
        expect(eager, optimizer)


def expect(eager: Eager, optimizer: Optimizer) -> None:
    key = id(optimizer)
    try:
        eager.session.steps.optimizer_exists(key)
    except Exception as problem:
        eager.session.guard.contain("noticing an optimizer", problem)

    forget_step, forget_plan = eager.session.steps.optimizer_gone, eager.parameters.plans.pop

    def gone() -> None:  # see `vanishing.py`
        forget_step(key)
        forget_plan(key, None)

    weakref.finalize(optimizer, gone).atexit = False


# -- its step --------------------------------------------------------------------------------------


def _before(eager: Eager, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    mark = eager.session.clock()
    try:
        if eager.session.steps.before_optimizer(id(optimizer)):
            eager.finish_step(behind=True)
        if eager.light:
            eager.parameters.before(optimizer, has_closure(args, kwargs))
        else:
            eager.replay.before_optimizer()
            eager.parameters.before(optimizer, has_closure(args, kwargs))
            eager.weigh("gradient")
            eager.facts.before_optimizer(optimizer, has_closure(args, kwargs))
        eager.replay.gradients()
    except Exception as problem:
        eager.session.guard.contain("observing gradients", problem)
    if eager.dump is not None and eager.dump.on:
        charged(eager, "dumping gradients", eager.dump.before_optimizer, optimizer, has_closure(args, kwargs))
    eager.session.spent_since(mark)


def _after(eager: Eager, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    mark = eager.session.clock()
    try:
        eager.optimizer_steps += 1
        eager.parameters.after(optimizer, has_closure(args, kwargs))
        if eager.light:
            eager.rest.tally(optimizer)
        else:
            eager.weigh("after")
            eager.facts.after_optimizer(optimizer)
    except Exception as problem:
        eager.session.guard.contain("observing parameters", problem)
    if eager.dump is not None and eager.dump.on:
        charged(eager, "dumping parameters", eager.dump.after_optimizer, optimizer, has_closure(args, kwargs))
    eager.session.spent_since(mark)
    _stepped(eager, optimizer)
    if not eager.light:
        eager.replay.after_optimizer()


def _stepped(eager: Eager, optimizer: Optimizer, *, skipped: bool = False) -> None:
    try:
        eager.set_phase(Phase.FORWARD)
        if eager.session.steps.after_optimizer(id(optimizer)):
            scalars = {f"lr/{k}": float(g["lr"]) for k, g in enumerate(optimizer.param_groups) if _plain(g.get("lr"))}
            if skipped:
                scalars["skipped"] = 1.0
            eager.finish_step(scalars=scalars)
        else:
            eager.mark()
    except Exception as problem:
        eager.session.guard.contain("ending a step", problem)


def _plain(lr: Any) -> bool:
    return isinstance(lr, float | int) or (isinstance(lr, torch.Tensor) and lr.device.type == "cpu")


# -- what else is wrapped --------------------------------------------------------------------------


def _wrap_init(current: Current) -> None:
    original = Optimizer.__init__

    @functools.wraps(original)
    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        note_optimizer(self, current())

    seams.put(Optimizer, "__init__", init, "know which optimizers there are")


def _wrap_zero_grad(current: Current) -> None:
    """Clearing gradients is no part of a step that is run again."""
    original = Optimizer.zero_grad

    @functools.wraps(original)
    def zero_grad(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or PATCHES.out:
            return original(self, *args, **kwargs)
        eager = current()
        if eager is None:
            return original(self, *args, **kwargs)
        tape = eager.replay.tape
        if eager.thread != get_ident():
            KNOWN.elsewhere.add(KNOWN.number(self))
            return original(self, *args, **kwargs)
        if not tape.live:
            result = original(self, *args, **kwargs)
        else:
            recording = tape.recording
            tape.rest()
            try:
                result = original(self, *args, **kwargs)
            finally:
                tape.resume()
                tape.recording = tape.recording and recording
        gradients_cleared(eager, sys._getframe(1))
        return result

    seams.put(Optimizer, "zero_grad", zero_grad, "leave it out of a step that is run again")


def _wrap_scaler(current: Current) -> None:
    """A scaler may skip the optimizer's step, and scales the loss: both must be seen as what they are."""
    scaler = torch.amp.GradScaler
    step, scale = scaler.step, scaler.scale

    @functools.wraps(step)
    def observed_step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        eager = None if is_dynamo_compiling() else current()
        if eager is None or eager.thread != get_ident():
            return step(self, optimizer, *args, **kwargs)
        done = eager.optimizer_steps
        eager.facts.clipping.in_scaler = True
        try:
            result = step(self, optimizer, *args, **kwargs)
        finally:
            eager.facts.clipping.in_scaler = False
        if eager.optimizer_steps == done:
            stepper = optimizer_behind(optimizer) or optimizer
            if eager.rest.asleep:
                eager.rest.stepped(stepper, skipped=True)
            else:
                with unseen():
                    _stepped(eager, stepper, skipped=True)
        return result

    @functools.wraps(scale)
    def observed_scale(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        if is_dynamo_compiling():
            return result
        eager = current()
        if eager is not None:
            eager.session.engine.loss_scaling = self.is_enabled()
            loss_scaled(eager, self)
        if isinstance(result, torch.Tensor) and result is not outputs:
            result._tensonde_unscaled = outputs
        return result

    seams.put(scaler, "step", observed_step, "count the steps that the scaler skips")
    seams.put(scaler, "scale", observed_scale, "record the loss as it was before scaling")
