"""Puts the adapter into torch: `nn.Module.__call__`, the autograd entry points, optimizers, scaler, loaders.

Nothing is observed until the training does something (calls a module, steps an optimizer); only then
is a session opened. A forked child starts anew: it has its own session, or none (data workers).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import torch
import torch.utils.data
from torch import is_grad_enabled, nn
from torch._C._dynamo import eval_frame
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from sonde.adapters.torch import birthplace
from sonde.adapters.torch.batches import watch_batches
from sonde.adapters.torch.eager import Eager
from sonde.adapters.torch.entry import is_compiled
from sonde.adapters.torch.facts.patches import made, observe_facts
from sonde.adapters.torch.graph import backend
from sonde.adapters.torch.graph.graphs import Graphs
from sonde.model.moment import Phase

Opener = Callable[[], Eager | None]

_opener: Opener | None = None
_pending = False
"""The session is to be opened when the training begins."""
_eager: Eager | None = None
_installed = False
_orphans: list[Any] = []


def current() -> Eager | None:
    return _eager


def install(opener: Opener) -> None:
    """`opener` makes the session when the training begins; None from it means that this process is not to be watched."""
    global _opener, _pending, _installed
    _opener, _pending = opener, True
    if _installed:
        return
    _installed = True
    nn.Module.__call__ = _observed_call
    skipped = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    eval_frame.set_code_exec_strategy(_observed_call.__code__, skipped)  # as torch's own, which dynamo leaves out
    torch.autograd.backward = _observing(torch.autograd.backward, losses=True)
    torch.autograd.grad = _observing(torch.autograd.grad, losses=False)
    register_optimizer_step_pre_hook(_before_optimizer)
    register_optimizer_step_post_hook(_after_optimizer)
    _wrap_optimizer_init()
    _wrap_scaler()
    _wrap_loader()
    _wrap_compile()
    backend.install(_graphs)
    watch_batches(current)
    birthplace.install()
    observe_facts(current)
    os.register_at_fork(after_in_child=_forked)
    logging.getLogger("sonde.adapters").debug("installed into torch %s", torch.__version__)


def _forked() -> None:
    """The parent's session is the parent's: it is kept, untouched, so that nothing of it is closed or flushed here."""
    global _eager, _pending
    if _eager is not None:
        _orphans.append(_eager)
        _eager = None
        _pending = True


def installed() -> bool:
    return _installed


def begin() -> Eager | None:
    """Opens the session, once."""
    global _eager, _pending
    if not _pending or _opener is None or torch.utils.data.get_worker_info() is not None:
        return None
    _pending = False
    _eager = _opener()
    if _eager is not None:
        if _compiled:
            _eager.replay.compiled(_compiled[-1])
        for optimizer in list(_known_optimizers):
            _expect(_eager, optimizer)
        for loader in list(_known_loaders):
            _epoch_begins(_eager, loader)
    return _eager


def close() -> None:
    """The training is over, or nobody wants to watch it any more."""
    global _eager, _pending
    _eager, _pending = None, False


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Nothing is observed meanwhile: Sonde itself calls the user's modules."""
    global _eager, _pending
    before = _eager, _pending
    _eager, _pending = None, False
    try:
        yield
    finally:
        _eager, _pending = before


# -- modules ---------------------------------------------------------------------------------------

_original_call = nn.Module.__call__


_compiling_frames = eval_frame.get_eval_frame_callback
"""Set while dynamo looks at every frame that begins: inside of a compiled module, and after a graph break in it."""


def _observed_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if is_dynamo_compiling() or _compiling_frames():
        return _original_call(self, *args, **kwargs)
    eager = _eager
    if eager is None and (not _pending or (eager := begin()) is None):
        return _original_call(self, *args, **kwargs)
    if eager.inside_idle and (not eager.resting or is_grad_enabled()):  # an evaluation in between is looked at
        return _original_call(self, *args, **kwargs)
    if eager.replay.tape.live and eager.thread == get_ident():
        return eager.replay.tape.root(_observed_call, self, args, kwargs)
    if eager.tracer is not None:
        return eager.replay.traced_call(_original_call, _observe, self, args, kwargs)
    if eager.idle and id(self) not in eager.facts.root_ids:
        return _original_call(self, *args, **kwargs)
    return _observe(eager, self, args, kwargs)


def _observe(eager: Eager, self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if eager.thread != get_ident():
        eager.other_threads += 1
        return _original_call(self, *args, **kwargs)
    timing = eager.accounting.timing and eager.level
    began, step = (perf_counter_ns() - eager.session.cost_ns, eager.step) if timing else (0, 0)
    try:
        entry = eager.enter(self, args, kwargs)
    except Exception as problem:
        eager.session.guard.contain("entering a module", problem)
        return _original_call(self, *args, **kwargs)
    if timing and eager.step == step:  # for want of an optimizer, the end of a step may lie in here
        eager.accounting.enter_ns += perf_counter_ns() - eager.session.cost_ns - began
    dump = eager.dump if eager.dump is not None and eager.dump.on else None
    if dump is not None:
        call = _dumping(eager, "inputs", dump.entering, entry, args, kwargs)
    eager.stack.append(entry)
    eager.inside_idle = eager.idle and eager.tracer is None
    quiet = dump is not None and dump.hidden_from(self)
    try:
        if eager.stops.ops.pushed and is_compiled(self):
            with eager.stops.ops.aside():
                out = _original_call(self, *args, **kwargs)
        else:
            out = _original_call(self, *args, **kwargs)
    finally:
        if quiet and dump is not None and dump.ops is not None:
            dump.ops.resume()
        eager.inside_idle = eager.resting
        eager.stack.pop()
        if not eager.stack:
            eager.facts.root_left()
    if not eager.stack:
        _returned(eager, self, out)
    if dump is not None and call is not None and call >= 0:
        _dumping(eager, "outputs", dump.left, entry, call, args, kwargs, out)
    if eager.level:
        began, counted = (perf_counter_ns(), eager.block.nanos) if timing else (0, 0)
        try:
            eager.left(entry, out)
        except Exception as problem:
            eager.session.guard.contain("observing a module", problem)
            eager.give_up(entry, problem)
        if timing:
            eager.accounting.leave_ns += perf_counter_ns() - began - (eager.block.nanos - counted)
    return out


def _dumping(eager: Eager, what: str, put: Callable[..., Any], *args: Any) -> Any:
    mark = eager.session.clock()
    try:
        return put(*args)
    except Exception as problem:
        eager.session.guard.contain(f"dumping {what}", problem)
        return None
    finally:
        eager.session.spent_since(mark)


def _returned(eager: Eager, root: nn.Module, out: Any) -> None:
    try:
        eager.facts.root_returned(root, out)
    except Exception as problem:
        eager.session.guard.contain("observing a root", problem)


# -- autograd --------------------------------------------------------------------------------------


def _observing(original: Callable[..., Any], *, losses: bool) -> Callable[..., Any]:
    """Wraps `torch.autograd.backward` or `.grad`: the phase is backward meanwhile, and what is differentiated is a loss."""

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return original(*args, **kwargs)
        eager = _eager
        if eager is None and (not _pending or (eager := begin()) is None):
            return original(*args, **kwargs)
        if eager.thread != get_ident():
            return original(*args, **kwargs)
        before = eager.phase
        try:
            given = args[0] if args and losses else kwargs.get("tensors") if losses else ()
            eager.backward_begins(given)
            if losses and before is not Phase.BACKWARD:
                eager.set_phase(before)
                eager.replay.loss(given, args[1] if len(args) > 1 else kwargs.get("grad_tensors"))
                eager.set_phase(Phase.BACKWARD)
        except Exception as problem:
            eager.session.guard.contain("observing a loss", problem)
        try:
            return original(*args, **kwargs)
        finally:
            try:
                eager.backward_ends(before)
            except Exception as problem:
                eager.session.guard.contain("ending a backward pass", problem)

    return observed


# -- optimizers ------------------------------------------------------------------------------------


def _before_optimizer(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    eager = _eager
    if eager is None and (not _pending or (eager := begin()) is None):
        return
    if eager.thread != get_ident():
        return
    mark = eager.session.clock()
    try:
        if eager.session.steps.before_optimizer(id(optimizer)):
            eager.finish_step(behind=True)
        if not eager.resting:
            eager.replay.before_optimizer()
            eager.parameters.before(optimizer, _has_closure(args, kwargs))
            eager.weigh("gradient")
            eager.facts.before_optimizer(optimizer, _has_closure(args, kwargs))
        eager.replay.gradients()
    except Exception as problem:
        eager.session.guard.contain("observing gradients", problem)
    if eager.dump is not None and eager.dump.on:
        _dumping(eager, "gradients", eager.dump.before_optimizer, optimizer, _has_closure(args, kwargs))
    eager.session.spent_since(mark)


def _after_optimizer(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    eager = _eager
    if eager is None or eager.thread != get_ident():
        return
    mark = eager.session.clock()
    try:
        eager.optimizer_steps += 1
        if eager.resting:
            eager.facts.optimizer_stepped(optimizer)
        else:
            eager.parameters.after(optimizer, _has_closure(args, kwargs))
            eager.weigh("after")
            eager.facts.after_optimizer(optimizer)
    except Exception as problem:
        eager.session.guard.contain("observing parameters", problem)
    if eager.dump is not None and eager.dump.on:
        _dumping(eager, "parameters", eager.dump.after_optimizer, optimizer, _has_closure(args, kwargs))
    eager.session.spent_since(mark)
    _stepped(eager, optimizer)
    if not eager.resting:
        eager.replay.after_optimizer()


def _stepped(eager: Eager, optimizer: torch.optim.Optimizer, *, skipped: bool = False) -> None:
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


def _has_closure(args: Any, kwargs: Any) -> bool:
    """`args` of the hook hold the optimizer first, then what `step` was called with."""
    given = [value for value in args if not isinstance(value, torch.optim.Optimizer)]
    return kwargs.get("closure") is not None or any(callable(value) for value in given)


def _wrap_optimizer_init() -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        note_optimizer(self)

    torch.optim.Optimizer.__init__ = init

    clearing = torch.optim.Optimizer.zero_grad

    @functools.wraps(clearing)
    def zero_grad(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        tape = _eager.replay.tape if _eager is not None else None
        if tape is None or not tape.live or _eager is None or _eager.thread != get_ident():
            return clearing(self, *args, **kwargs)
        recording = tape.recording
        tape.rest()
        try:
            return clearing(self, *args, **kwargs)
        finally:
            tape.resume()
            tape.recording = tape.recording and recording

    torch.optim.Optimizer.zero_grad = zero_grad


_known_optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def note_optimizer(optimizer: torch.optim.Optimizer) -> None:
    _known_optimizers.add(optimizer)
    made(optimizer)
    if _eager is not None:
        _expect(_eager, optimizer)


def _expect(eager: Eager, optimizer: torch.optim.Optimizer) -> None:
    key = id(optimizer)
    try:
        eager.session.steps.optimizer_exists(key)
    except Exception as problem:
        eager.session.guard.contain("noticing an optimizer", problem)

    def gone() -> None:
        eager.session.steps.optimizer_gone(key)
        eager.parameters.plans.pop(key, None)

    weakref.finalize(optimizer, gone).atexit = False


def _wrap_scaler() -> None:
    """A scaler may skip the optimizer's step, and scales the loss: both must be seen as what they are."""
    scaler = torch.amp.GradScaler
    step, scale = scaler.step, scaler.scale

    @functools.wraps(step)
    def observed_step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        eager = _eager
        if eager is None or eager.thread != get_ident():
            return step(self, optimizer, *args, **kwargs)
        done = eager.optimizer_steps
        result = step(self, optimizer, *args, **kwargs)
        if eager.optimizer_steps == done:
            _stepped(eager, optimizer, skipped=True)
        return result

    @functools.wraps(scale)
    def observed_scale(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        if _eager is not None:
            _eager.session.engine.loss_scaling = self.is_enabled()
        if isinstance(result, torch.Tensor) and result is not outputs:
            result._sonde_unscaled = outputs
        return result

    scaler.step, scaler.scale = observed_step, observed_scale


def _wrap_loader() -> None:
    """Each pass over the first loader that the training iterates is an epoch."""
    original = torch.utils.data.DataLoader.__iter__

    @functools.wraps(original)
    def iterate(self: Any) -> Any:
        if _eager is not None:
            _epoch_begins(_eager, self)
        elif _pending:
            _known_loaders.add(self)
        return original(self)

    torch.utils.data.DataLoader.__iter__ = iterate


def _graphs() -> Graphs | None:
    eager = _eager
    if eager is None and (not _pending or (eager := begin()) is None):
        return None
    return eager.graphs if eager.thread == get_ident() and eager.graphs.active else None


def _wrap_compile() -> None:
    """A compiled function sees the modes on torch's stack, so ours must not be there; a compiled module is called without."""
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if model is not None and not isinstance(model, nn.Module):
            _compiled.append(getattr(model, "__name__", "a function"))
            if _eager is not None:
                _eager.replay.compiled(_compiled[-1])
        return original(model, *args, **kwargs)

    torch.compile = compile


_compiled: list[str] = []


def _epoch_begins(eager: Eager, loader: Any) -> None:
    try:
        eager.epoch_begins(loader)
    except Exception as problem:
        eager.session.guard.contain("counting epochs", problem)


_known_loaders: weakref.WeakSet[Any] = weakref.WeakSet()
