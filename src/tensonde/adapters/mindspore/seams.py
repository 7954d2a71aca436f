"""Puts the adapter into MindSpore: `Cell.__call__`, the executor of PyNative mode, optimizers, data sets.

Nothing is observed until the training does something (calls a cell); only then is a session opened. A forked child starts anew: it
has its own session, or none (data workers).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Generator
from threading import get_ident
from typing import Any

import mindspore
from mindspore import nn

from tensonde.adapters.mindspore import private
from tensonde.adapters.mindspore.making import first_pass, observe_making
from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run import naming, optimizers
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.tensors import tensors_in, wait_for
from tensonde.adapters.mindspore.tracing.replay import run_again
from tensonde.adapters.mindspore.tracing.tracer import Tracer
from tensonde.model.moment import Phase
from tensonde.program import frames
from tensonde.session.recursion import make_room

Opener = Callable[[], PyNative | None]

SEAMS: dict[str, str] = {}
"""Attributes of MindSpore that are replaced, and why."""

_opener: Opener | None = None
_pending = False
_training: PyNative | None = None
_installed = False
_orphans: list[Any] = []
_graphs = 0
"""Forward passes under way that will be differentiated, one inside the other."""
_in_optimizer = False
_compiled_depth = 0
"""Compiled calls under way: what they call is theirs."""
_replaying: Tracer | None = None
"""The trace of a pass that is run again."""
_outputs: dict[int, Any] = {}
"""What was differentiated, by the id of the function or cell, until its backward pass."""

PLAIN, OPTIMIZER, ASIDE = 0, 1, 2
_kinds: dict[type, int] = {}


def current() -> PyNative | None:
    return _training


def installed() -> bool:
    return _installed


def differentiating() -> bool:
    """Whether what runs now will be differentiated."""
    return _graphs > 0


def install(opener: Opener) -> None:
    """`opener` makes the session when the training begins; None from it means that this process is not to be watched."""
    global _opener, _pending, _installed
    _opener, _pending = opener, True
    if _installed:
        return
    _installed = True
    make_room()
    frames.register("mindspore", mindspore.__file__)
    put(nn.Cell, "__call__", _observed_call, "see what cells give")
    _wrap_executor()
    _wrap_jit()
    observe_making(put, current)
    os.register_at_fork(after_in_child=_forked)
    logging.getLogger("tensonde.adapters").debug("installed into mindspore %s", mindspore.__version__)


def put(owner: Any, attribute: str, replacement: Any, why: str) -> None:
    SEAMS[f"{owner.__module__}.{owner.__qualname__}.{attribute}"] = why
    setattr(owner, attribute, replacement)


def begin() -> PyNative | None:
    """Opens the session, once."""
    global _training, _pending
    if not _pending or _opener is None:
        return None
    _pending = False
    _training = _opener()
    if _training is not None:
        dataset = first_pass()
        if dataset is not None:
            _training.epoch_begins(dataset)
        for optimizer in KNOWN.optimizers():
            _training.session.steps.optimizer_exists(id(optimizer))
    return _training


def withdraw() -> None:
    """The program ends: what is called from now on is MindSpore's own."""
    global _training, _pending
    _training, _pending = None, False
    if nn.Cell.__call__ is _observed_call:
        nn.Cell.__call__ = _original_call


def _forked() -> None:
    """The parent's session is the parent's: it is kept, untouched, so that nothing of it is closed or flushed here."""
    global _training, _pending
    if _training is not None:
        _orphans.append(_training)
        _training, _pending = None, True


# -- cells -----------------------------------------------------------------------------------------

_original_call = nn.Cell.__call__
_get_mode = mindspore.context._get_mode


def _kind(cell: Any) -> int:
    kind = _kinds.get(type(cell))
    if kind is None:
        if naming.is_optimizer(cell):
            kind = OPTIMIZER
        elif naming.is_wrapper(cell) or isinstance(cell, nn.learning_rate_schedule.LearningRateSchedule):
            kind = ASIDE
        else:
            kind = PLAIN
        _kinds[type(cell)] = kind
    return kind


def _observed_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    training = _training
    if training is None and (not _pending or (training := begin()) is None):
        return _original_call(self, *args, **kwargs)
    if training.thread != get_ident():
        training.other_threads += 1
        return _original_call(self, *args, **kwargs)
    kind = _kind(self)
    if _replaying is not None:
        return _replayed(training, _replaying, self, args, kwargs, aside=kind != PLAIN)
    if kind == OPTIMIZER:
        return _step(training, self, args, kwargs)
    if _in_optimizer or training.rest.asleep:
        return _original_call(self, *args, **kwargs)
    if _get_mode() == mindspore.GRAPH_MODE and not training.stack and os.environ.get("MS_JIT") != "0":
        return _compiled_call(training, type(self).__name__, lambda: _original_call(self, *args, **kwargs))
    if kind == ASIDE:
        return _original_call(self, *args, **kwargs)
    return _observe(training, self, args, kwargs)


def _observe(training: PyNative, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session = training.session
    mark = session.clock()
    tracer = training.tracing.tracer
    try:
        entry = training.enter(self, args, kwargs)
        if tracer is not None:
            tracer.entering(entry, self, args, kwargs)
        if training.dump is not None:
            training.dump.entering(entry, args, kwargs)
    except Exception as problem:
        training.contain("entering a cell", problem)
        return _original_call(self, *args, **kwargs)
    session.spent_since(mark)
    training.stack.append(entry)
    out = None
    try:
        out = _original_call(self, *args, **kwargs)
    finally:
        training.stack.pop()
        if tracer is not None and out is None:
            tracer.left(entry, self, args, kwargs, None)
    if not training.wanted:
        return out
    wait_for(tensors_in(out))
    mark = session.clock()
    try:
        if tracer is not None and out is not None:
            tracer.left(entry, self, args, kwargs, out)
        if training.level:
            training.left(entry, out)
        if training.dump is not None:
            training.dump.left(entry, out)
    except Exception as problem:
        training.contain("observing a cell", problem)
        training.give_up(entry, problem)
    session.spent_since(mark)
    return out


def _replayed(
    training: PyNative, tracer: Tracer, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, aside: bool
) -> Any:
    if aside:
        return _original_call(self, *args, **kwargs)
    entry = training.roster.of(self)
    tracer.entering(entry, self, args, kwargs)
    training.stack.append(entry)
    out = None
    try:
        out = _original_call(self, *args, **kwargs)
    finally:
        training.stack.pop()
        tracer.left(entry, self, args, kwargs, out)
    return out


# -- optimizers ------------------------------------------------------------------------------------


def _step(training: PyNative, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    global _in_optimizer
    if _in_optimizer:  # one optimizer made of another
        return _original_call(optimizer, *args, **kwargs)
    resting = training.rest.asleep
    given = args[0] if args else kwargs.get("gradients", ())
    gradients = given if isinstance(given, list | tuple) else (given,)
    if not resting:
        optimizers.steps(training, optimizer, gradients)
    _in_optimizer = True
    try:
        out = _original_call(optimizer, *args, **kwargs)
    finally:
        _in_optimizer = False
    if resting:
        try:
            training.facts.optimizer_stepped(optimizer)
            training.rest.stepped(id(optimizer))
        except Exception as problem:
            training.contain("counting a step", problem)
    else:
        optimizers.stepped(training, optimizer)
    return out


# -- what is compiled --------------------------------------------------------------------------------


def _wrap_jit() -> None:
    executor = private.jit_executor()
    if executor is None:
        return
    call = executor.__call__

    @functools.wraps(call)
    def observed_jit(self: Any, *args: Any, **kwargs: Any) -> Any:
        training = _training
        if training is None and (not _pending or (training := begin()) is None):
            return call(self, *args, **kwargs)
        if training.thread != get_ident() or _in_optimizer or _replaying is not None or _compiled_depth:
            return call(self, *args, **kwargs)
        name = getattr(self.fn, "__name__", "a function")
        inside = bool(training.stack or _graphs)
        return _compiled_call(training, name, lambda: call(self, *args, **kwargs), inside=inside)

    put(executor, "__call__", observed_jit, "know what runs compiled")


def _compiled_call(training: PyNative, name: str, run: Callable[[], Any], *, inside: bool = False) -> Any:
    """`inside`: it is part of a pass that is watched, and one op of it."""
    global _compiled_depth
    try:
        training.graphs.note("value_and_grad" if name == "after_grad" else name)
        if not inside:
            training.graphs.calling()
    except Exception as problem:
        training.contain("noting what is compiled", problem)
    _compiled_depth += 1
    try:
        out = run()
    finally:
        _compiled_depth -= 1
    if not inside:
        try:
            training.graphs.called(out, gradients=name == "after_grad")
        except Exception as problem:
            training.contain("observing what is compiled", problem)
    return out


# -- the executor of PyNative mode -------------------------------------------------------------------


def _wrap_executor() -> None:
    executor = private.executor()
    if executor is None:
        return
    new_graph, end_graph, grad, clear = executor.new_graph, executor.end_graph, executor.grad, executor.clear_res

    @functools.wraps(new_graph)
    def observed_new_graph(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        global _graphs
        training = _training if _training is not None or not _pending else begin()
        if training is not None and training.twin is not None and not _graphs and training.thread == get_ident():
            try:
                training.twin.met((args, kwargs))
            except Exception as problem:
                training.contain("feeding a batch", problem)
        _graphs += 1
        return new_graph(self, obj, *args, **kwargs)

    @functools.wraps(end_graph)
    def observed_end_graph(self: Any, obj: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
        global _graphs
        _graphs = max(0, _graphs - 1)
        if _training is not None and not _training.rest.asleep:
            _outputs[id(obj)] = output
        return end_graph(self, obj, output, *args, **kwargs)

    @functools.wraps(grad)
    def observed_grad(self: Any, obj: Any, operation: Any, weights: Any, *rest: Any) -> Any:
        training = _training
        if training is None or training.thread != get_ident() or _in_optimizer:
            return grad(self, obj, operation, weights, *rest)
        if _replaying is not None:
            _replaying.differentiated(_outputs.pop(id(obj), None))
            training.set_phase(Phase.BACKWARD)
            return grad(self, obj, operation, weights, *rest)
        if training.rest.asleep:
            return grad(self, obj, operation, weights, *rest)
        loss = _outputs.pop(id(obj), None)
        _outputs.clear()
        out = _backward(training, loss, weights, lambda: grad(self, obj, operation, weights, *rest))
        training.pass_again = functools.partial(_run_again, training, obj, operation, weights, rest[2:], loss)
        optimizers.replay_if_spoilt(training)
        return out

    @functools.wraps(clear)
    def observed_clear(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _graphs
        _graphs = 0
        return clear(self, *args, **kwargs)

    put(executor, "new_graph", observed_new_graph, "know what will be differentiated")
    put(executor, "end_graph", observed_end_graph, "see losses")
    put(executor, "grad", observed_grad, "see backward passes")
    put(executor, "clear_res", observed_clear, "know that a pass was given up")


def _backward(training: PyNative, loss: Any, weights: Any, run: Callable[[], Any]) -> Any:
    session = training.session
    wait_for(tensors_in(loss))
    mark = session.clock()
    before = training.phase
    try:
        if training.tracing.tracer is not None:
            training.tracing.tracer.differentiated(loss)
            training.parameters.unreached |= training.tracing.tracer.unreached()
        training.backward_begins(loss)
    except Exception as problem:
        training.contain("observing a loss", problem)
    session.spent_since(mark)
    out = None
    try:
        out = run()
    finally:
        mark = session.clock()
        try:
            training.backward_ends(before)
            training.gradients(weights, out)
        except Exception as problem:
            training.contain("ending a backward pass", problem)
        session.spent_since(mark)
    return out


def _run_again(training: PyNative, fn: Any, operation: Any, weights: Any, args: tuple[Any, ...], loss: Any) -> None:
    training.tracing.alarmed_for_good()
    given = args[:-1] if getattr(operation, "sens_param", False) else args
    try:
        if weights is None or not run_again(training, fn, given, weights, loss):
            training.tracing.follow = True
    except Exception as problem:
        training.contain("running a step again", problem)


@contextlib.contextmanager
def replaying(tracer: Tracer) -> Generator[None]:
    """A pass is run again for this trace: cells and ops are shown to it, and to nobody else."""
    global _replaying, _graphs
    _replaying, graphs = tracer, _graphs
    _graphs = 0
    tracer.begin()
    try:
        yield
    finally:
        tracer.pause()
        _replaying, _graphs = None, graphs
        _outputs.clear()
