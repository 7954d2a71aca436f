"""Forward and backward passes: the executor of PyNative mode, which is asked to differentiate."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from threading import get_ident
from typing import Any

from tensonde.adapters.mindspore import private
from tensonde.adapters.mindspore.experiments.recorder import Recorder
from tensonde.adapters.mindspore.run import optimizers
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.seams.place import HERE, begin, put
from tensonde.adapters.mindspore.tensors import tensors_in, wait_for
from tensonde.adapters.mindspore.tracing.replay import run_again
from tensonde.adapters.mindspore.tracing.tracer import Tracer
from tensonde.model.moment import Phase


def wrap_executor() -> None:
    executor = private.executor()
    if executor is None:
        return
    new_graph, end_graph, grad, clear = executor.new_graph, executor.end_graph, executor.grad, executor.clear_res

    @functools.wraps(new_graph)
    def observed_new_graph(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        training = HERE.training if HERE.training is not None or not HERE.pending else begin()
        if training is not None and training.twin is not None and not HERE.graphs and training.thread == get_ident():
            try:
                training.twin.met((args, kwargs))
            except Exception as problem:
                training.contain("feeding a batch", problem)
        if training is not None and not HERE.graphs and training.thread == get_ident() and not training.light:
            try:
                training.facts.batches.differentiated(args, training.step)
            except Exception as problem:
                training.contain("noting labels", problem)
        HERE.graphs += 1
        return new_graph(self, obj, *args, **kwargs)

    @functools.wraps(end_graph)
    def observed_end_graph(self: Any, obj: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
        HERE.graphs = max(0, HERE.graphs - 1)
        if HERE.training is not None and not HERE.training.rest.asleep:
            HERE.outputs[id(obj)] = output
        return end_graph(self, obj, output, *args, **kwargs)

    @functools.wraps(grad)
    def observed_grad(self: Any, obj: Any, operation: Any, weights: Any, *rest: Any) -> Any:
        training = HERE.training
        if training is None or training.thread != get_ident() or HERE.in_optimizer:
            return grad(self, obj, operation, weights, *rest)
        if isinstance(HERE.replaying, Tracer):
            HERE.replaying.differentiated(HERE.outputs.pop(id(obj), None))
            training.set_phase(Phase.BACKWARD)
            out = grad(self, obj, operation, weights, *rest)
            held = list(weights) if isinstance(weights, list | tuple) else [weights] if weights is not None else []
            HERE.replaying.arrived(held, tensors_in(out)[-len(held) :] if held else [])
            training.set_phase(Phase.FORWARD)
            return out
        if training.rest.asleep:
            return grad(self, obj, operation, weights, *rest)
        loss = HERE.outputs.pop(id(obj), None)
        HERE.outputs.clear()
        try:
            seeded = bool(getattr(operation, "sens_param", False))
            training.facts.loss_given(obj, loss, alone=weights is None or seeded or rest[1] is True)
            training.facts.seeded(rest[-1] if seeded else None)
        except Exception as problem:
            training.contain("noting a loss", problem)
        out = _backward(training, loss, weights, lambda: grad(self, obj, operation, weights, *rest))
        training.laboratory.passed(obj, rest[2:], operation, loss)
        training.pass_again = functools.partial(_run_again, training, obj, operation, weights, rest[2:], loss)
        optimizers.replay_if_spoilt(training)
        return out

    @functools.wraps(clear)
    def observed_clear(self: Any, *args: Any, **kwargs: Any) -> Any:
        HERE.graphs = 0
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
            training.parameters.traced(training.tracing.tracer)
        training.backward_begins(loss, trains=weights is not None)
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
            training.gradients(weights, out, loss)
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
def replaying(tracer: Tracer | Recorder, *, compiled: bool = False) -> Generator[None]:
    """A pass is run again for this trace: cells and ops are shown to it, and to nobody else. `compiled`: it is one of compiled code."""
    HERE.replaying, HERE.rehearsing, graphs = tracer, compiled, HERE.graphs
    HERE.graphs = 0
    tracer.begin()
    try:
        yield
    finally:
        tracer.pause()
        HERE.replaying, HERE.rehearsing, HERE.graphs = None, False, graphs
        HERE.outputs.clear()
