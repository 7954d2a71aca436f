"""Puts the adapter into torch: `nn.Module.__call__` here, `losses`, `optimizers` and `loaders` beside it.

Nothing is observed until the training does something (calls a module, steps an optimizer); only then
is a session opened. A forked child starts anew: it has its own session, or none (data workers).
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from threading import get_ident, main_thread
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from torch import is_grad_enabled, nn
from torch._C._dynamo import eval_frame
from torch.compiler import is_dynamo_compiling

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.compiled import backend
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.charged import charged
from tensonde.adapters.torch.run.record import is_compiled
from tensonde.adapters.torch.seams import function_mode, loaders, optimizers, warned
from tensonde.adapters.torch.seams.batches import observe_batches
from tensonde.adapters.torch.seams.collectives import observe_collectives, observe_functional
from tensonde.adapters.torch.seams.current import CURRENT
from tensonde.adapters.torch.seams.function_mode import noticing
from tensonde.adapters.torch.seams.lifted import PATCHES, Swap, copied
from tensonde.adapters.torch.seams.loaders import observe_epochs
from tensonde.adapters.torch.seams.losses import observe_backward
from tensonde.adapters.torch.seams.notes import observe_facts
from tensonde.adapters.torch.seams.optimizers import observe_optimizers
from tensonde.adapters.torch.seams.pipelines import observe_pipelines
from tensonde.adapters.torch.seams.spawned import observe_spawned
from tensonde.adapters.torch.seams.vanishing import make_way_for_swaps
from tensonde.adapters.torch.seams.wrapped import observe_buffers
from tensonde.session.recursion import make_room

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.graphs import Graphs
    from tensonde.adapters.torch.run.watcher import Watcher

Opener = Callable[[], "Watcher | None"]

_opener: Opener | None = None
_installed = False
_orphans: list[Any] = []


def current() -> Watcher | None:
    watcher: Watcher | None = CURRENT.watcher
    return watcher


def watching() -> Watcher | None:
    """The adapter, unless it rests or only glances at this step: for what is noted of a step beside its numbers."""
    return None if PATCHES.out else current()


def install(opener: Opener) -> None:
    """`opener` makes the session when the training begins; None from it means that this process is not to be watched."""
    global _opener, _installed
    _opener, CURRENT.pending = opener, True
    if _installed:
        PATCHES.put()
        return
    _installed = True
    make_room()
    swap = Swap(nn.Module, "__call__", _observed_call, "see what modules give")
    PATCHES.add(swap)
    skipped = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    for code in (swap.code, _observed_call.__code__):  # as torch's own, which dynamo leaves out
        eval_frame.set_code_exec_strategy(code, skipped)
    observe_backward(_begun)
    observe_optimizers(current, _begun)
    observe_epochs(current, lambda: CURRENT.pending)
    _wrap_compile()
    backend.install(_graphs)
    observe_batches(current)
    observe_collectives(current, _begun_by_several)
    observe_pipelines()
    observe_spawned()
    observe_buffers(current)
    observe_facts(current, watching)
    function_mode.make_way_for_devices()
    warned.install()
    make_way_for_swaps()
    os.register_at_fork(after_in_child=_forked)
    logging.getLogger("tensonde.adapters").debug("installed into torch %s", torch.__version__)


def _forked() -> None:
    """The parent's session is the parent's: it is kept, untouched, so that nothing of it is closed or flushed here."""
    PATCHES.asleep = False
    PATCHES.put()
    if CURRENT.watcher is not None:
        _orphans.append(CURRENT.watcher)
        CURRENT.watcher = None
        CURRENT.pending = True
        function_mode.forget()


def installed() -> bool:
    return _installed


def _begun() -> Watcher | None:
    """The adapter; where the training begins with this, it is made now."""
    return current() or begin()


def _begun_by_several() -> Watcher | None:
    """The same where this process is one of several ranks, and this is its main thread: another one may talk beside the training."""
    if CURRENT.watcher is not None or not CURRENT.pending or get_ident() != main_thread().ident:
        return current()
    distributed = torch.distributed
    return begin() if distributed.is_initialized() and distributed.get_world_size() > 1 else None


def begin() -> Watcher | None:
    """Opens the session, once."""
    if not CURRENT.pending or _opener is None or torch.utils.data.get_worker_info() is not None:
        return None
    CURRENT.pending = False
    with function_mode.unseen():
        CURRENT.watcher = watcher = _opener()
        if watcher is not None:
            observe_functional(current)
            if _compiled:
                _compiles_function(watcher)
            optimizers.catch_up(watcher)
            loaders.catch_up(watcher)
    return watcher


def close() -> None:
    """The training is over, or is no longer watched."""
    CURRENT.watcher, CURRENT.pending = None, False
    PATCHES.asleep = False


def withdraw() -> None:
    """The program ends: what is called from now on, by `__del__` of the user's while modules are taken apart, is torch's own."""
    close()
    if nn.Module.__call__ is _observed_call:
        nn.Module.__call__ = _original_call


# -- modules ---------------------------------------------------------------------------------------

_original_call = copied(nn.Module.__call__)


_compiling_frames = eval_frame.get_eval_frame_callback
"""Set while dynamo looks at every frame that begins: inside of a compiled module, and after a graph break in it."""


_one_frame = _original_call.__code__.co_names == ("_compiled_call_impl", "_call_impl")
"""torch's own function only chooses between these two: where nothing is observed, its frame is saved, which pays for ours."""


def _observed_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if is_dynamo_compiling():
        return _original_call(self, *args, **kwargs)
    watcher: Watcher | None = CURRENT.watcher
    if watcher is not None and watcher.state.inside_idle:
        if _one_frame and self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)
        return _original_call(self, *args, **kwargs)
    if _compiling_frames():
        return _original_call(self, *args, **kwargs)
    if watcher is None and (not CURRENT.pending or (watcher := begin()) is None):
        return _original_call(self, *args, **kwargs)
    state = watcher.state
    if watcher.replay.tape.live and state.thread == get_ident():
        return watcher.replay.tape.root(_observed_call, self, args, kwargs)
    if watcher.tracing.tracer is not None:
        if state.replayed_by and state.replayed_by != get_ident():
            return _original_call(self, *args, **kwargs)
        return watcher.replay.traced_call(_original_call, functools.partial(_observe, watcher), self, args, kwargs)
    if state.idle and id(self) not in watcher.facts.root_ids:
        if not (is_grad_enabled() or state.stack or id(self) in watcher.facts.untouched.parts):
            charged(watcher.session, "looking at an evaluation", watcher.facts.stranger_evaluated, self)
        return _original_call(self, *args, **kwargs)
    return _observe(watcher, self, args, kwargs)


def _observe(watcher: Watcher, self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state = watcher.state
    if state.thread != get_ident():
        state.other_threads += 1
        return _original_call(self, *args, **kwargs)
    timing = watcher.accounting.timing and state.level
    began, step = (perf_counter_ns() - watcher.session.cost_ns, state.step) if timing else (0, 0)
    try:
        if noticing():
            with function_mode.unseen():
                entry = watcher.module_entered(self, args, kwargs)
        else:
            entry = watcher.module_entered(self, args, kwargs)
    except Exception as problem:
        watcher.session.guard.contain("entering a module", problem)
        return _original_call(self, *args, **kwargs)
    if timing and state.step == step:  # for want of an optimizer, the end of a step may lie in here
        watcher.accounting.enter_ns += perf_counter_ns() - watcher.session.cost_ns - began
    dump = watcher.dump if watcher.dump is not None and watcher.dump.on else None
    if dump is not None:
        call = charged(watcher.session, "dumping inputs", dump.entering, entry, args, kwargs)
    state.stack.append(entry)
    state.inside_idle = state.idle and watcher.tracing.tracer is None
    # What is compiled may be guarded by the code that would be exchanged.
    aside = state.inside_idle and not KNOWN.compiled
    if aside:
        PATCHES.aside()
    quiet = dump is not None and dump.hidden_from(self)
    try:
        if watcher.stops.ops.pushed and is_compiled(self):
            with watcher.stops.ops.aside():
                out = _original_call(self, *args, **kwargs)
        else:
            out = _original_call(self, *args, **kwargs)
    finally:
        if quiet and dump is not None and dump.ops is not None:
            dump.ops.resume()
        state.inside_idle = False
        if aside:
            PATCHES.back()
        state.stack.pop()
        if not state.stack:
            watcher.root_left()
    if not state.stack:
        _returned(watcher, self, out)
    if dump is not None and call is not None and call >= 0:
        charged(watcher.session, "dumping outputs", dump.left, entry, call, args, kwargs, out)
    if state.level:
        began, counted = (perf_counter_ns(), watcher.session.block.nanos) if timing else (0, 0)
        try:
            if noticing():
                with function_mode.unseen():
                    watcher.module_left(entry, out)
            else:
                watcher.module_left(entry, out)
        except Exception as problem:
            watcher.session.guard.contain("observing a module", problem)
            watcher.give_up(entry, problem)
        if timing:
            watcher.accounting.leave_ns += perf_counter_ns() - began - (watcher.session.block.nanos - counted)
    return out


def _returned(watcher: Watcher, root: nn.Module, out: Any) -> None:
    try:
        watcher.facts.root_returned(root, out)
    except Exception as problem:
        watcher.session.guard.contain("observing a root", problem)


def _graphs() -> Graphs | None:
    watcher = _begun()
    if watcher is None:
        return None
    return watcher.graphs if watcher.state.thread == get_ident() and watcher.graphs.active else None


def _wrap_compile() -> None:
    """A compiled function sees the modes on torch's stack, so ours must not be there; a compiled module is called without."""
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        KNOWN.compiled = True
        if model is not None and not isinstance(model, nn.Module):
            _compiled.append(getattr(model, "__name__", "a function"))
            if CURRENT.watcher is not None:
                _compiles_function(CURRENT.watcher)
        return original(model, *args, **kwargs)

    seams.put(torch, "compile", compile, "leave compiled functions without our modes")


def _compiles_function(watcher: Watcher) -> None:
    watcher.replay.compiled(_compiled[-1])
    watcher.session.steps.unannounced = True


_compiled: list[str] = []
