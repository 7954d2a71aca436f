"""Puts the adapter into torch: `nn.Module.__call__` here, `losses`, `optimizers` and `loaders` beside it.

Nothing is observed until the training does something (calls a module, steps an optimizer); only then
is a session opened. A forked child starts anew: it has its own session, or none (data workers).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import torch
import torch.utils.data
from torch import is_grad_enabled, nn
from torch._C._dynamo import eval_frame
from torch.compiler import is_dynamo_compiling

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.compiled import backend
from tensonde.adapters.torch.compiled.graphs import Graphs
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.batches import watch_batches
from tensonde.adapters.torch.run.charged import charged
from tensonde.adapters.torch.run.eager import Eager
from tensonde.adapters.torch.run.entry import is_compiled
from tensonde.adapters.torch.seams import function_mode, loaders, optimizers
from tensonde.adapters.torch.seams.function_mode import noticing
from tensonde.adapters.torch.seams.lifted import PATCHES, Swap, copied
from tensonde.adapters.torch.seams.loaders import observe_epochs
from tensonde.adapters.torch.seams.losses import observe_backward
from tensonde.adapters.torch.seams.notes import observe_facts
from tensonde.adapters.torch.seams.optimizers import observe_optimizers
from tensonde.adapters.torch.seams.vanishing import make_way_for_swaps
from tensonde.session.recursion import make_room

Opener = Callable[[], Eager | None]

_opener: Opener | None = None
_pending = False
"""The session is to be opened when the training begins."""
_eager: Eager | None = None
_installed = False
_orphans: list[Any] = []


def current() -> Eager | None:
    return _eager


def watching() -> Eager | None:
    """The adapter, unless it rests or only glances at this step: for what is noted of a step beside its numbers."""
    return None if PATCHES.out else _eager


def install(opener: Opener) -> None:
    """`opener` makes the session when the training begins; None from it means that this process is not to be watched."""
    global _opener, _pending, _installed
    _opener, _pending = opener, True
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
    observe_epochs(current, lambda: _pending)
    _wrap_compile()
    backend.install(_graphs)
    watch_batches(current)
    observe_facts(current, watching)
    function_mode.make_way_for_devices()
    make_way_for_swaps()
    os.register_at_fork(after_in_child=_forked)
    logging.getLogger("tensonde.adapters").debug("installed into torch %s", torch.__version__)


def _forked() -> None:
    """The parent's session is the parent's: it is kept, untouched, so that nothing of it is closed or flushed here."""
    global _eager, _pending
    PATCHES.asleep = False
    PATCHES.put()
    if _eager is not None:
        _orphans.append(_eager)
        _eager = None
        _pending = True
        function_mode.forget()


def installed() -> bool:
    return _installed


def _begun() -> Eager | None:
    """The adapter; where the training begins with this, it is made now."""
    return _eager if _eager is not None else begin()


def begin() -> Eager | None:
    """Opens the session, once."""
    global _eager, _pending
    if not _pending or _opener is None or torch.utils.data.get_worker_info() is not None:
        return None
    _pending = False
    with function_mode.unseen():
        _eager = _opener()
        if _eager is not None:
            if _compiled:
                _compiles_function(_eager)
            optimizers.catch_up(_eager)
            loaders.catch_up(_eager)
    return _eager


def close() -> None:
    """The training is over, or nobody wants to watch it any more."""
    global _eager, _pending
    _eager, _pending = None, False
    PATCHES.asleep = False


def withdraw() -> None:
    """The program ends: what is called from now on, by `__del__` of the user's while modules are taken apart, is torch's own."""
    close()
    if nn.Module.__call__ is _observed_call:
        nn.Module.__call__ = _original_call


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Nothing is observed meanwhile: Tensonde itself calls the user's modules."""
    global _eager, _pending
    before = _eager, _pending
    _eager, _pending = None, False
    try:
        yield
    finally:
        _eager, _pending = before


# -- modules ---------------------------------------------------------------------------------------

_original_call = copied(nn.Module.__call__)


_compiling_frames = eval_frame.get_eval_frame_callback
"""Set while dynamo looks at every frame that begins: inside of a compiled module, and after a graph break in it."""


_one_frame = _original_call.__code__.co_names == ("_compiled_call_impl", "_call_impl")
"""torch's own function only chooses between these two: where nothing is observed, its frame is saved, which pays for ours."""


def _observed_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if is_dynamo_compiling():
        return _original_call(self, *args, **kwargs)
    eager = _eager
    if eager is not None and eager.inside_idle:
        if _one_frame and self._compiled_call_impl is None:
            return self._call_impl(*args, **kwargs)
        return _original_call(self, *args, **kwargs)
    if _compiling_frames():
        return _original_call(self, *args, **kwargs)
    if eager is None and (not _pending or (eager := begin()) is None):
        return _original_call(self, *args, **kwargs)
    if eager.replay.tape.live and eager.thread == get_ident():
        return eager.replay.tape.root(_observed_call, self, args, kwargs)
    if eager.tracer is not None:
        return eager.replay.traced_call(_original_call, _observe, self, args, kwargs)
    if eager.idle and id(self) not in eager.facts.root_ids:
        if not (self.training or eager.stack or id(self) in eager.facts.untouched.parts or is_grad_enabled()):
            charged(eager, "looking at an evaluation", eager.facts.stranger_evaluated, self)
        return _original_call(self, *args, **kwargs)
    return _observe(eager, self, args, kwargs)


def _observe(eager: Eager, self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if eager.thread != get_ident():
        eager.other_threads += 1
        return _original_call(self, *args, **kwargs)
    timing = eager.accounting.timing and eager.level
    began, step = (perf_counter_ns() - eager.session.cost_ns, eager.step) if timing else (0, 0)
    try:
        if noticing():
            with function_mode.unseen():
                entry = eager.enter(self, args, kwargs)
        else:
            entry = eager.enter(self, args, kwargs)
    except Exception as problem:
        eager.session.guard.contain("entering a module", problem)
        return _original_call(self, *args, **kwargs)
    if timing and eager.step == step:  # for want of an optimizer, the end of a step may lie in here
        eager.accounting.enter_ns += perf_counter_ns() - eager.session.cost_ns - began
    dump = eager.dump if eager.dump is not None and eager.dump.on else None
    if dump is not None:
        call = charged(eager, "dumping inputs", dump.entering, entry, args, kwargs)
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
        eager.inside_idle = False
        eager.stack.pop()
        if not eager.stack:
            eager.facts.root_left()
    if not eager.stack:
        _returned(eager, self, out)
    if dump is not None and call is not None and call >= 0:
        charged(eager, "dumping outputs", dump.left, entry, call, args, kwargs, out)
    if eager.level:
        began, counted = (perf_counter_ns(), eager.block.nanos) if timing else (0, 0)
        try:
            if noticing():
                with function_mode.unseen():
                    eager.left(entry, out)
            else:
                eager.left(entry, out)
        except Exception as problem:
            eager.session.guard.contain("observing a module", problem)
            eager.give_up(entry, problem)
        if timing:
            eager.accounting.leave_ns += perf_counter_ns() - began - (eager.block.nanos - counted)
    return out


def _returned(eager: Eager, root: nn.Module, out: Any) -> None:
    try:
        eager.facts.root_returned(root, out)
    except Exception as problem:
        eager.session.guard.contain("observing a root", problem)


def _graphs() -> Graphs | None:
    eager = _begun()
    if eager is None:
        return None
    return eager.graphs if eager.thread == get_ident() and eager.graphs.active else None


def _wrap_compile() -> None:
    """A compiled function sees the modes on torch's stack, so ours must not be there; a compiled module is called without."""
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        KNOWN.compiled = True
        if model is not None and not isinstance(model, nn.Module):
            _compiled.append(getattr(model, "__name__", "a function"))
            if _eager is not None:
                _compiles_function(_eager)
        return original(model, *args, **kwargs)

    seams.put(torch, "compile", compile, "leave compiled functions without our modes")


def _compiles_function(eager: Eager) -> None:
    eager.replay.compiled(_compiled[-1])
    eager.session.steps.unannounced = True


_compiled: list[str] = []
