"""Tensonde's one place on torch's stack of function modes, and how its own ops stay hidden from the user's modes.

A part that wants to see calls of the function API is a `Looker`. All of them share one mode, `Presence`, which is the only
thing of Tensonde's that is ever on the stack. Leaving a mode takes off whatever is on top, so a mode of ours on top of
one of the user's would be taken off in its place. Three rules keep the user's modes as they would be without us:

1. `Presence` lies below all modes of the user. So it is on top only where the user has none to take off.
2. A default device insists on being the lowest mode (`DeviceContext.__exit__` checks it). Where a `DeviceContext` is
   lowest, `Presence` is off the stack and the lookers see what passes through the `DeviceContext`.
3. While a mode handles an op, torch has taken it off the stack and puts it back on top afterwards. `Presence` is never
   moved meanwhile. Should the op have left a mode of the user's on the stack, the `Presence` that comes back on top of
   it turns into that mode.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from types import FrameType
from typing import Any, Self

import torch
from torch._C._dynamo import eval_frame
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.transforms import functorch_level as _functorch_level

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_length = torch._C._len_torch_function_stack
_at = torch._C._get_function_stack_at
_push_dispatch = torch._C._push_on_torch_dispatch_stack
_pop_dispatch = torch._C._pop_torch_dispatch_stack
_length_dispatch = torch._C._len_torch_dispatch_stack
_hidden = torch._C.DisableTorchFunction
_jit_state = torch._C._get_tracing_state
_compiler = eval_frame.get_eval_frame_callback
"""Dynamo, while it looks at every frame that begins."""
_set_compiler = eval_frame.set_eval_frame
_dispatch_mode = torch._C._get_dispatch_mode
_Modes = torch._C._TorchDispatchModeKey


class Looker:
    """Sees each call of the function API while it is looking (see `look` and `look_away`)."""

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        """`func` is called from `frame`. Gives what `run(*args, **kwargs)` gives."""
        raise NotImplementedError


class _Here(threading.local):
    inside = 0
    """How many ops run now in this thread from which torch has hidden the lowest mode, which it will put back."""


_here = _Here()
_lookers: tuple[Looker, ...] = ()
_thread = 0
"""The thread that looks. Autograd hands the stack on to threads of its own, in which nothing is looked at."""


class Presence(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        _here.inside += 1
        try:
            if not _lookers or get_ident() != _thread:
                return func(*args, **kwargs) if kwargs else func(*args)
            return _show(func, args, kwargs or {}, sys._getframe(1))
        finally:
            _here.inside -= 1
            if _length():
                _turn_into_top(self)


_presence = Presence()


def _show(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
    lookers = _lookers
    if len(lookers) == 1:
        return lookers[0].called(func, args, kwargs, func, frame)

    def through(k: int) -> Callable[..., Any]:
        if k == len(lookers):
            return func
        return lambda *args, **kwargs: lookers[k].called(func, args, kwargs, through(k + 1), frame)

    return through(0)(*args, **kwargs)


def _turn_into_top(presence: Presence) -> None:
    """The user entered a mode inside an op and has not left it: what torch puts back now has to be that mode."""
    global _presence
    top = _pop()
    try:
        presence.__class__ = type(top)
        presence.__dict__ = top.__dict__
    except TypeError:  # of another layout; one that is on the stack under us works all the same
        _push(top)
        return
    _presence = Presence()


# -- on and off ------------------------------------------------------------------------------------


def look(looker: Looker) -> None:
    """From here on `looker` sees what this thread calls."""
    global _lookers, _thread
    _thread = get_ident()
    if looker not in _lookers:
        _lookers = (*_lookers, looker)
    settle()


def look_away(looker: Looker) -> bool:
    """Whether it was looking."""
    global _lookers
    if looker not in _lookers:
        return False
    _lookers = tuple([other for other in _lookers if other is not looker])
    settle()
    return True


def forget() -> None:
    """In a forked child: no part looks any more."""
    global _lookers
    _lookers = ()
    settle()


def settle() -> None:
    """Puts `Presence` on the stack, or takes it off, as is wanted and where that is possible now."""
    if _here.inside:
        return
    if not _lookers or _thread != get_ident():
        _leave()
    elif not (count := _length()):
        _push(_presence)
    elif _at(0) is not _presence and not isinstance(_at(0), DeviceContext):
        above = [_pop() for _ in range(count)]
        _push(_presence)
        for mode in reversed(above):
            _push(mode)


def _leave() -> None:
    count = _length()
    if not count or _at(0) is not _presence:
        return
    above = [_pop() for _ in range(count - 1)]
    _pop()
    for mode in reversed(above):
        _push(mode)


def make_way_for_devices() -> None:
    """Once in a process: a `DeviceContext` shows the lookers what passes, and finds no mode of ours when it comes and goes."""
    handle, enter, leave = DeviceContext.__torch_function__, DeviceContext.__enter__, DeviceContext.__exit__

    def shown(self: DeviceContext, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_dynamo_compiling() or _length():  # or not the lowest
            return handle(self, func, types, args, kwargs)
        _here.inside += 1
        try:
            if not _lookers or get_ident() != _thread:
                return handle(self, func, types, args, kwargs)
            kwargs = kwargs or {}
            if func in _device_constructors() and kwargs.get("device") is None:
                kwargs["device"] = self.device
            return _show(func, args, kwargs, sys._getframe(1))
        finally:
            _here.inside -= 1

    def entered(self: DeviceContext) -> Any:
        if not is_dynamo_compiling():
            _leave()
        return enter(self)

    def left(self: DeviceContext, *problem: Any) -> Any:
        if is_dynamo_compiling():
            return leave(self, *problem)
        _leave()
        try:
            return leave(self, *problem)
        finally:
            settle()

    why = "keep our mode out of the way of a default device"
    seams.put(DeviceContext, "__torch_function__", shown, why)
    seams.put(DeviceContext, "__enter__", entered, why)
    seams.put(DeviceContext, "__exit__", left, why)


# -- what Tensonde computes itself -----------------------------------------------------------------


class _Hidden:
    """Function and dispatch modes are hidden, also the user's. Tensors of subclasses keep their own dispatch. Dynamo looks away."""

    __slots__ = ("_compiler", "_function", "_modes")

    def __enter__(self) -> Self:
        self._compiler = _set_compiler(None)
        self._function = _hidden()
        self._function.__enter__()
        self._modes = [_pop_dispatch(None) for _ in range(_length_dispatch())]
        return self

    def __exit__(self, *problem: Any) -> None:
        for mode in reversed(self._modes):
            _push_dispatch(mode)
        self._function.__exit__(*problem)
        _set_compiler(self._compiler)


def unseen() -> AbstractContextManager[Any]:
    """What is computed inside is no part of the training: no mode sees it, neither ours nor the user's."""
    return _Hidden() if _length_dispatch() or _compiler() else _hidden()


def unnoticed(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same for all that a function does. It adds one frame."""

    @functools.wraps(method)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with _Hidden() if _length_dispatch() or _compiler() else _hidden():
            return method(*args, **kwargs)

    return quiet


def noticing() -> bool:
    """Whether there is any mode. Where there is none, `unseen` can be saved."""
    return bool(_length() or _length_dispatch())


class Aside:
    """Around a call of which nothing need be seen but the call itself: torch goes straight through, as without Tensonde. Other modes than ours stay where they are,
    and ours with them."""

    __slots__ = ("_out",)

    def __enter__(self) -> None:
        self._out = not _here.inside and _length() == 1 and _at(0) is _presence
        if self._out:
            _pop()

    def __exit__(self, *problem: Any) -> None:
        if self._out:
            settle()


class alone:
    """While Tensonde runs the user's code again: lookers see it, the user's modes do not.

    Only default devices stay, since what is run depends on them. All comes back as it was.
    """

    def __enter__(self) -> None:
        self._state, self._inside = torch._C._get_torch_function_state(), _here.inside
        self._dispatch = [_pop_dispatch(None) for _ in range(_length_dispatch())]
        self._modes = [_pop() for _ in range(_length())]
        _here.inside = 0
        for mode in reversed(self._modes):
            if isinstance(mode, DeviceContext):
                _push(mode)
        torch._C._set_torch_function_state(torch._C._TorchFunctionState.ENABLED)
        settle()

    def __exit__(self, *problem: Any) -> None:
        while _length():
            _pop()
        for mode in reversed(self._modes):
            _push(mode)
        while _length_dispatch():
            _pop_dispatch(None)
        for mode in reversed(self._dispatch):
            _push_dispatch(mode)
        _here.inside = self._inside
        torch._C._set_torch_function_state(self._state)


def traced_by_compiler() -> bool:
    """Inside AOTAutograd or make_fx. Must be asked before `unseen`, which takes their modes off."""
    return _dispatch_mode(_Modes.FUNCTIONAL) is not None or _dispatch_mode(_Modes.PROXY) is not None


def transforming() -> bool:
    """Inside a function transform or torch.jit.trace: tensors have no values, or what we do would become part
    of the result."""
    return _functorch_level() is not None or _jit_state() is not None
