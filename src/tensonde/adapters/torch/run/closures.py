"""Closures: the forward and backward pass of a step that `optimizer.step(closure)` calls. Lightning trains this way, LBFGS must."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from tensonde.adapters.torch.seams.function_mode import unseen

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher


def has_closure(args: Any, kwargs: Any) -> bool:
    """`args` of the hook hold the optimizer first, then what `step` was called with."""
    given = [value for value in args if not isinstance(value, Optimizer)]
    return kwargs.get("closure") is not None or any(callable(value) for value in given)


def observed_closure(watcher: Watcher, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What `step` is to be called with instead, so that the closure is seen as the part of the step that it is."""
    return (
        tuple(
            _observed(watcher, optimizer, value) if callable(value) and not isinstance(value, Optimizer) else value
            for value in args
        ),
        {
            name: _observed(watcher, optimizer, value) if name == "closure" and callable(value) else value
            for name, value in kwargs.items()
        },
    )


def _observed(watcher: Watcher, optimizer: Optimizer, closure: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def observed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        _contained(watcher, "beginning a closure", lambda: watcher.replay.closure_begins(again=calls > 1))
        try:
            result = closure(*args, **kwargs)
        finally:
            _contained(watcher, "ending a closure", watcher.replay.closure_ends)
        if calls == 1:  # those of the parameters that the step began with
            _contained(watcher, "observing gradients", lambda: _gradients(watcher, optimizer))
        return result

    functools.update_wrapper(observed, closure)
    return observed


def _gradients(watcher: Watcher, optimizer: Optimizer) -> None:
    mark = watcher.session.clock()
    with unseen():
        watcher.parameters.closure_ended(optimizer)
        watcher.replay.gradients()
    watcher.session.spent_since(mark)


def _contained(watcher: Watcher, doing: str, do: Callable[[], None]) -> None:
    try:
        do()
    except Exception as problem:
        watcher.session.guard.contain(doing, problem)
