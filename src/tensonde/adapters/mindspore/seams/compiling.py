"""Calls of what is compiled: `jit`, and the outermost cell in GRAPH_MODE."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

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
        if training.thread != get_ident() or HERE.in_optimizer or HERE.replaying is not None or HERE.compiled:
            return call(self, *args, **kwargs)
        name = getattr(self.fn, "__name__", "a function")
        inside = bool(training.stack or HERE.graphs)
        return compiled_call(training, name, lambda: call(self, *args, **kwargs), inside=inside)

    put(executor, "__call__", observed_jit, "know what runs compiled")


def compiled_call(training: PyNative, name: str, run: Callable[[], Any], *, inside: bool = False) -> Any:
    """`inside`: it is part of a pass that is watched, and one op of it."""
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
            training.graphs.called(out, gradients=name == "after_grad")
        except Exception as problem:
            training.contain("observing what is compiled", problem)
    return out


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
