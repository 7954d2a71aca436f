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
from tensonde.program.frames import user_place

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

Current = Callable[[], "Watcher | None"]

known_optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def observe_optimizers(current: Current, begun: Current) -> None:
    """Once in a process. `current` gives the adapter; `begun` also begins to watch where that is yet to be done."""

    # A compiled step contains its hooks: there they are transparent, and `ByHand` notices that parameters change.
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if is_dynamo_compiling() or PATCHES.asleep:
            return None
        watcher = begun()
        if watcher is None:
            return None
        if watcher.state.thread != get_ident():
            KNOWN.elsewhere.add(KNOWN.number(optimizer))
            return None
        with unseen():
            _before(watcher, optimizer, args, kwargs)
        return observed_closure(watcher, optimizer, args, kwargs) if has_closure(args, kwargs) else None

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_dynamo_compiling():
            return
        if PATCHES.asleep:
            PATCHES.count(optimizer)
            return
        watcher = current()
        if watcher is not None and watcher.state.thread == get_ident():
            with unseen():
                _after(watcher, optimizer, args, kwargs)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    _wrap_init(current)
    _wrap_zero_grad(current)
    _wrap_scaler(current)


def note_optimizer(optimizer: Optimizer, watcher: Watcher | None) -> None:
    """It was just made, or handed over by the script."""
    known_optimizers.add(optimizer)
    made(optimizer)
    if watcher is not None:
        expect(watcher, optimizer)
        if watcher.state.thread == get_ident():
            watcher.replay.tracing.stage_begins()
            watcher.rest.end()


def catch_up(watcher: Watcher) -> None:
    """The training begins: these optimizers were made before."""
    for optimizer in list(known_optimizers):
        expect(watcher, optimizer)


def expect(watcher: Watcher, optimizer: Optimizer) -> None:
    key = id(optimizer)
    try:
        watcher.session.steps.optimizer_exists(key)
    except Exception as problem:
        watcher.session.guard.contain("noticing an optimizer", problem)

    forget_step, forget_plan = watcher.session.steps.optimizer_gone, watcher.parameters.plans.pop

    def gone() -> None:  # see `vanishing.py`
        forget_step(key)
        forget_plan(key, None)

    weakref.finalize(optimizer, gone).atexit = False


# -- its step --------------------------------------------------------------------------------------


def _before(watcher: Watcher, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    mark = watcher.session.clock()
    try:
        if watcher.session.steps.before_optimizer(id(optimizer)):
            watcher.finish_step(behind=True)
        if watcher.state.light:
            watcher.parameters.before(optimizer, has_closure(args, kwargs))
        else:
            watcher.replay.before_optimizer(optimizer)
            watcher.parameters.before(optimizer, has_closure(args, kwargs))
            watcher.weigh("gradient")
            watcher.facts.before_optimizer(optimizer, has_closure(args, kwargs))
        watcher.replay.gradients()
        if watcher.laboratory.wants(watcher.state.step) and not has_closure(args, kwargs):
            watcher.laboratory.ask(optimizer)
        watcher.memory.before_optimizer()
        if not has_closure(args, kwargs):
            watcher.tracing.optimizer_begins(optimizer)
    except Exception as problem:
        watcher.session.guard.contain("observing gradients", problem)
    if watcher.dump is not None and watcher.dump.on:
        charged(
            watcher.session, "dumping gradients", watcher.dump.before_optimizer, optimizer, has_closure(args, kwargs)
        )
    watcher.session.spent_since(mark)


def _after(watcher: Watcher, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    mark = watcher.session.clock()
    try:
        watcher.tracing.optimizer_ended()
        watcher.state.optimizer_steps += 1
        watcher.parameters.after(optimizer, has_closure(args, kwargs))
        if watcher.session.world > 1:
            watcher.facts.course.steps(user_place(sys._getframe(2)))
        if watcher.state.light:
            watcher.rest.tally(optimizer)
        else:
            watcher.weigh("after")
            watcher.facts.after_optimizer(optimizer)
    except Exception as problem:
        watcher.session.guard.contain("observing parameters", problem)
    if watcher.dump is not None and watcher.dump.on:
        charged(
            watcher.session, "dumping parameters", watcher.dump.after_optimizer, optimizer, has_closure(args, kwargs)
        )
    watcher.session.spent_since(mark)
    _stepped(watcher, optimizer)
    if not watcher.state.light:
        watcher.replay.after_optimizer()


def _stepped(watcher: Watcher, optimizer: Optimizer, *, skipped: bool = False) -> None:
    try:
        watcher.state.set_phase(Phase.FORWARD)
        if watcher.session.steps.after_optimizer(id(optimizer)):
            scalars = {f"lr/{k}": float(g["lr"]) for k, g in enumerate(optimizer.param_groups) if _plain(g.get("lr"))}
            if skipped:
                scalars["skipped"] = 1.0
            watcher.finish_step(scalars=scalars)
        else:
            watcher.mark()
    except Exception as problem:
        watcher.session.guard.contain("ending a step", problem)


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
        watcher = current()
        if watcher is None:
            return original(self, *args, **kwargs)
        tape = watcher.replay.tape
        if watcher.state.thread != get_ident():
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
        gradients_cleared(watcher, sys._getframe(1))
        return result

    seams.put(Optimizer, "zero_grad", zero_grad, "leave it out of a step that is run again")


def _wrap_scaler(current: Current) -> None:
    """A scaler may skip the optimizer's step, and scales the loss: both must be seen as what they are."""
    scaler = torch.amp.GradScaler
    step, scale = scaler.step, scaler.scale

    @functools.wraps(step)
    def observed_step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is None or watcher.state.thread != get_ident():
            return step(self, optimizer, *args, **kwargs)
        done = watcher.state.optimizer_steps
        watcher.facts.clipping.in_scaler = True
        try:
            result = step(self, optimizer, *args, **kwargs)
        finally:
            watcher.facts.clipping.in_scaler = False
        if watcher.state.optimizer_steps == done:
            stepper = optimizer_behind(optimizer) or optimizer
            if watcher.rest.asleep:
                watcher.rest.stepped(stepper, skipped=True)
            else:
                with unseen():
                    _stepped(watcher, stepper, skipped=True)
        return result

    @functools.wraps(scale)
    def observed_scale(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        if is_dynamo_compiling():
            return result
        watcher = current()
        if watcher is not None:
            watcher.session.engine.loss_scaling = self.is_enabled()
            loss_scaled(watcher, self)
        if isinstance(result, torch.Tensor) and result is not outputs:
            result._tensonde_unscaled = outputs
        return result

    seams.put(scaler, "step", observed_step, "count the steps that the scaler skips")
    seams.put(scaler, "scale", observed_scale, "record the loss as it was before scaling")
