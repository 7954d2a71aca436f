"""Calls of cells: modules, optimizers, and what is compiled."""

from __future__ import annotations

import functools
import os
from threading import get_ident
from typing import Any

import mindspore
from mindspore import nn

from tensonde.adapters.mindspore.experiments.recorder import Recorder
from tensonde.adapters.mindspore.graphs.rehearsal import OptimizerReached
from tensonde.adapters.mindspore.observers import clipping
from tensonde.adapters.mindspore.run import naming, optimizers
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.seams.compiling import compiled_call
from tensonde.adapters.mindspore.seams.place import HERE, begin
from tensonde.adapters.mindspore.tensors import tensors_in, wait_for
from tensonde.adapters.mindspore.tracing.tracer import Tracer

PLAIN, OPTIMIZER, ASIDE, CLIP = 0, 1, 2, 3
_kinds: dict[type, int] = {}

original_call = nn.Cell.__call__
_get_mode = mindspore.context._get_mode


def _kind(cell: Any) -> int:
    kind = _kinds.get(type(cell))
    if kind is None:
        if naming.is_optimizer(cell):
            kind = OPTIMIZER
        elif type(cell).__name__ == clipping.CELL:
            kind = CLIP
        elif naming.is_wrapper(cell) or isinstance(cell, nn.learning_rate_schedule.LearningRateSchedule):
            kind = ASIDE
        else:
            kind = PLAIN
        _kinds[type(cell)] = kind
    return kind


def observed_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    training = HERE.training
    if training is None and (not HERE.pending or (training := begin()) is None):
        return original_call(self, *args, **kwargs)
    if training.thread != get_ident():
        training.other_threads += 1
        return original_call(self, *args, **kwargs)
    kind = _kind(self)
    if HERE.replaying is not None:
        if kind == OPTIMIZER and HERE.rehearsing:
            raise OptimizerReached
        return _replayed(training, HERE.replaying, self, args, kwargs, aside=kind != PLAIN)
    if kind == OPTIMIZER:
        return _step(training, self, args, kwargs)
    if HERE.in_optimizer or training.rest.asleep:
        return original_call(self, *args, **kwargs)
    if _get_mode() == mindspore.GRAPH_MODE and not training.stack and os.environ.get("MS_JIT") != "0":
        run = functools.partial(original_call, self, *args, **kwargs)
        return compiled_call(training, type(self).__name__, run, self, run)
    if kind == CLIP and not training.stack:
        try:
            training.facts.clipping.clipped(self, args)
        except Exception as problem:
            training.contain("noting a clipping", problem)
    if kind != PLAIN:
        return original_call(self, *args, **kwargs)
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
        return original_call(self, *args, **kwargs)
    session.spent_since(mark)
    training.stack.append(entry)
    out = None
    try:
        out = original_call(self, *args, **kwargs)
    finally:
        training.stack.pop()
        if not training.stack:
            training.facts.noise.root_left()
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
    training: PyNative,
    tracer: Tracer | Recorder,
    self: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    aside: bool,
) -> Any:
    if aside:
        return original_call(self, *args, **kwargs)
    entry = training.roster.of(self)
    if HERE.rehearsing and not training.stack and isinstance(tracer, Tracer):
        training.facts.batches.given(entry.name, args, kwargs, training.step)
    tracer.entering(entry, self, args, kwargs)
    training.stack.append(entry)
    out = None
    try:
        out = original_call(self, *args, **kwargs)
    finally:
        training.stack.pop()
        tracer.left(entry, self, args, kwargs, out)
    return out


def _step(training: PyNative, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if HERE.in_optimizer:  # one optimizer made of another
        return original_call(optimizer, *args, **kwargs)
    resting = training.rest.asleep
    given = args[0] if args else kwargs.get("gradients", ())
    gradients = given if isinstance(given, list | tuple) else (given,)
    if not resting:
        optimizers.steps(training, optimizer, gradients)
    HERE.in_optimizer = True
    try:
        out = original_call(optimizer, *args, **kwargs)
    finally:
        HERE.in_optimizer = False
    if resting:
        try:
            training.facts.optimizer_stepped(optimizer)
            training.rest.stepped(id(optimizer))
        except Exception as problem:
            training.contain("counting a step", problem)
    else:
        optimizers.stepped(training, optimizer)
    return out
