"""Ops of the function API, while stops at them are wanted.

A torch-function mode sees each call that the user's code (or a module's forward) makes: `softmax`,
`linear`, `__add__`. It costs microseconds an op, so it is on the mode stack only while it is wanted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from tensonde.adapters.torch.seams.function_mode import Looker, look, look_away, unseen

if TYPE_CHECKING:
    from tensonde.adapters.torch.debugging.stops import Stops

_NOT_OPS = frozenset(
    {"detach", "detach_", "requires_grad_", "size", "dim", "numel", "clone_", "backward", "item", "data"}
)


class OpMode(Looker):
    def __init__(self, stops: Stops) -> None:
        self.stops = stops
        self.active = False
        self._away = False
        self.pushed = False
        self.forbidden = False
        """A compiled function would see the mode; its own nodes are places to stop, the ops around it are not."""
        self.counts: dict[int, Counter[str]] = {}

    def activate(self, wanted: bool) -> None:
        wanted = wanted and not self.forbidden
        self.active = wanted
        if self._away:
            return
        if wanted:
            look(self)
        else:
            look_away(self)
        self.pushed = wanted

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        with unseen():
            yield

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Off the stack meanwhile: a compiled module is called, and the compiler must not see it."""
        look_away(self)
        self.pushed = False
        self._away = True
        try:
            yield
        finally:
            self._away = False
            self.activate(self.active)

    def new_step(self) -> None:
        self.counts.clear()

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        out = run(*args, **kwargs)
        if self.active:
            with unseen():
                self._observe(func, out)
        return out

    def _observe(self, func: Callable[..., Any], out: Any) -> None:
        name = op_name(func)
        if name is not None:
            stack = self.stops.state.stack
            entry = stack[-1] if stack else None
            counter = self.counts.setdefault(id(entry) if entry else 0, Counter())
            key = f"{entry.calls}:{name}" if entry else name
            count = counter[key]
            counter[key] += 1
            try:
                self.stops.op(f"{entry.name if entry else ''}/{name}#{count}", out)
            except Exception as problem:
                self.stops.state.session.guard.contain("observing an op", problem)


def op_name(func: Callable[..., Any]) -> str | None:
    """`add` for `Tensor.__add__`, `softmax` for `F.softmax`; None for what computes nothing."""
    name: str = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__getitem__", "__setitem__"):
        return {"__getitem__": "getitem", "__setitem__": "setitem"}.get(name)
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        if name.startswith("r") and hasattr(torch.Tensor, f"__{name[1:]}__"):
            name = name[1:]
    if not name or name in _NOT_OPS or name.startswith("_"):
        return None
    return name
