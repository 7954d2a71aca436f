"""Calls of what is compiled: `jit`, and the outermost cell in GRAPH_MODE."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

import mindspore

from tensonde.adapters.mindspore import private
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.seams.place import HERE, begin, put


def wrap_jit() -> None:
    executor = private.jit_executor()
    if executor is None:
        return
    call = executor.__call__

    @functools.wraps(call)
    def observed_jit(self: Any, *args: Any, **kwargs: Any) -> Any:
        training = HERE.training
        if training is None and (not HERE.pending or (training := begin()) is None):
            return call(self, *args, **kwargs)
        if HERE.rehearsing and training.thread == get_ident():
            return _uncompiled(self.fn, args, kwargs)
        if training.thread != get_ident() or HERE.in_optimizer or HERE.replaying is not None or HERE.compiled:
            return call(self, *args, **kwargs)
        name = getattr(self.fn, "__name__", "a function")
        inside = bool(training.stack or HERE.graphs)
        run = functools.partial(call, self, *args, **kwargs)
        again = functools.partial(_uncompiled, self.fn, args, kwargs)
        return compiled_call(training, name, run, self.fn, again, inside=inside)

    put(executor, "__call__", observed_jit, "know what runs compiled")


def compiled_call(
    training: PyNative,
    name: str,
    run: Callable[[], Any],
    fn: Any,
    again: functools.partial[Any],
    *,
    inside: bool = False,
) -> Any:
    """`again` runs the Python of what is compiled, `fn`. `inside`: it is part of a pass that is watched, and one op of it."""
    try:
        if not inside:
            training.graphs.calling()
        training.graphs.note("value_and_grad" if name == "after_grad" else name)
    except Exception as problem:
        training.contain("noting what is compiled", problem)
    HERE.compiled += 1
    try:
        out = _run(training, run)
    finally:
        HERE.compiled -= 1
        if not inside:
            training.graphs.export.end()
    training.graphs.taps.settle(out)
    if not inside:
        try:
            training.graphs.called(out, fn, again, gradients=name == "after_grad")
        except Exception as problem:
            training.contain("observing what is compiled", problem)
    return out


def _uncompiled(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the Python of a compiled function. That of a derivative which was made in GRAPH_MODE can only be compiled: it is made anew."""
    if fn.__name__ != "after_grad" or "grad_" not in fn.__code__.co_freevars:
        return fn(*args, **kwargs)
    held = dict(zip(fn.__code__.co_freevars, (cell.cell_contents for cell in fn.__closure__), strict=True))
    make = mindspore.value_and_grad if held["grad_"].get_value else mindspore.grad
    position = held.get("grad_position")
    return make(held["fn"], position, held.get("weights"), has_aux=held["grad_"].has_aux)(*args, **kwargs)


def _run(training: PyNative, run: Callable[[], Any]) -> Any:
    """What cannot be compiled with Tensonde's taps is compiled without."""
    taps = training.graphs.taps
    try:
        return run()
    except Exception as problem:
        if not taps.there or taps.arrived:
            taps.abandon()
            raise
        taps.remove()
        training.unsupported["taps"] = f"the graph cannot be compiled with them: {type(problem).__name__}"
    return run()
