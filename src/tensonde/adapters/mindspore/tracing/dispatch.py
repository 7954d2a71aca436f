"""Every op that runs, while somebody wants to see it: MindSpore's dispatch mode, on its stack only then.

The mode is experimental in MindSpore 2.10. It sees the ops of the thread that entered it, not views such as `x[0]` (`getitem`
sees those) nor what nn's optimizers run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import mindspore
from mindspore import Tensor

from tensonde.adapters.mindspore.tracing.names import IGNORED

NOTHING: Final = object()
Looker = Callable[[str, Any, Any, FrameType], None]
"""Told of an op: its primitive, what it was given, what it gave, and the frame that called it."""

AVAILABLE = hasattr(mindspore, "MsDispatchMode")
_Mode: Any = mindspore.MsDispatchMode if AVAILABLE else object
_getitem = Tensor.__getitem__


class _Dispatch(_Mode):  # type: ignore[misc]
    def __ms_dispatch__(self, func: Any, args: Any, kwargs: Any = None) -> Any:
        name = func.name
        if forbid is not None:
            forbid(name)
        out = NOTHING if draw is None else draw(name, args)
        if out is NOTHING:
            out = func(*args, **(kwargs or {}))
        if _lookers and not _busy and name not in IGNORED:
            _tell(name, args, out, sys._getframe(1))
        return out


def _observed_getitem(self: Any, index: Any) -> Any:
    global _inside
    _inside += 1
    try:
        out = _getitem(self, index)
    finally:
        _inside -= 1
    if _lookers and not _busy and not _inside:
        _tell("Index", (self, index), out, sys._getframe(1))
    return out


forbid: Callable[[str], None] | None = None
"""Asked before an op runs, while a pass is run again; raises for what must not."""
draw: Callable[[str, Any], Any] | None = None
"""Asked before an op runs, in a run that is compared with another: gives what it is to draw, or `NOTHING`."""
_lookers: list[Looker] = []
_mode: Any = None
_busy = False
_inside = 0


def _tell(name: str, args: Any, out: Any, frame: FrameType) -> None:
    """What lookers compute themselves is nobody's business."""
    global _busy
    if _inside:  # an op by which MindSpore indexes
        return
    _busy = True
    try:
        for looker in _lookers:
            looker(name, args, out, frame)
    finally:
        _busy = False


def look(looker: Looker) -> None:
    global _mode
    if not AVAILABLE or looker in _lookers:
        return
    _lookers.append(looker)
    if _mode is None:
        _mode = _Dispatch()
        _mode.__enter__()
        Tensor.__getitem__ = _observed_getitem


def look_away(looker: Looker) -> bool:
    """Whether it had been looking."""
    global _mode
    if looker not in _lookers:
        return False
    _lookers.remove(looker)
    if not _lookers and _mode is not None:
        mode, _mode = _mode, None
        Tensor.__getitem__ = _getitem
        mode.__exit__(None, None, None)
    return True
