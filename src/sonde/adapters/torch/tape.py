"""What the current step did so far, so that it can be run again: calls of root modules and the ops between them.

The tape keeps what came from outside (data, parameters) by reference and nothing that it can make again, so it
costs no memory worth the name. Its mode sees only code outside of modules: it is taken off for the time of
a root's call, of the optimizer's step, and where a compiler may look at the stack of modes.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator
from math import isfinite
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sonde.adapters.torch.frames import rank_of
from sonde.adapters.torch.modes import push, remove
from sonde.adapters.torch.tensors import tensors_in
from sonde.adapters.torch.trace import module_of
from sonde.model.moment import Phase

if TYPE_CHECKING:
    from sonde.adapters.torch.eager import Eager

MOST_ENTRIES = 2000
MOST_ROOTS = 256
_ASKED_LARGEST = 1 << 20
_RANDOM = frozenset({
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d",
    "bernoulli", "bernoulli_", "multinomial", "normal", "normal_", "uniform_", "rrelu", "gumbel_softmax", "poisson",
    "random_", "exponential_", "scaled_dot_product_attention", "multi_head_attention_forward",
})  # fmt: skip
_QUESTIONS = frozenset({"isnan", "isfinite", "isinf"})
_MADE = ("_like", "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
_grad_enabled = torch.is_grad_enabled
_any_autocast = torch._C._is_any_autocast_enabled
_functorch_level = torch._C._functorch.maybe_current_level
_generator = torch.default_generator
_hidden = torch._C.DisableTorchFunction


class Slot(int):
    """Stands for a tensor that the tape can make again: the number of the value."""


class _Made(weakref.ref[Tensor]):
    __slots__ = ("key", "slot")
    key: int
    slot: Slot


class Entry:
    """`call` is a module or a function. `outputs` are the slots of what it gave, in the order of `tensors_in`."""

    __slots__ = ("args", "autocast", "buffers", "call", "code", "kwargs", "line", "outputs", "owner", "random")

    def __init__(self, call: Any, args: Any, kwargs: Any, random: Tensor | None) -> None:
        self.call = call
        self.args = args
        self.kwargs = kwargs
        self.random = random
        self.buffers: list[tuple[Tensor, Tensor]] = []
        self.autocast: tuple[tuple[str, torch.dtype], ...] = ()
        self.code: CodeType | None = None
        self.line = 0
        self.owner: nn.Module | None = None
        self.outputs: list[Slot] = []


class Tape:
    def __init__(self, eager: Eager) -> None:
        self.eager = eager
        self.mode = TapeMode(self)
        self.recording = False
        self.live = False
        """The mode is on the stack, and no module runs."""
        self.wanted = False
        """May be recorded at all in this step."""
        self.trouble = ""
        """Why this step cannot be run again exactly, if it cannot."""
        self.entries: list[Entry] = []
        self.losses: list[tuple[Slot, Slot, Any]] = []
        """What was differentiated so far, the same without loss scaling, and the gradients given."""
        self.asked: Callable[[Tensor], None] = lambda tensor: None
        """The script looks whether a value of the tape is finite, and it is not."""
        self.before_root: Callable[[Entry, nn.Module], None] = lambda entry, module: None
        self.after_root: Callable[[nn.Module], None] = lambda module: None
        self._made: dict[int, _Made] = {}
        self._given: dict[int, tuple[Tensor, int]] = {}
        self._slots = 0
        self._roots = 0

    # -- on and off ------------------------------------------------------------------------------

    def resume(self) -> None:
        """From here on, what happens outside of modules is recorded."""
        if not self.wanted or self.trouble:
            return
        if not self.live:
            if not self.mode.inside:  # else torch puts it back by itself
                push(self.mode)
            self.live = True
        self.recording = True

    def pause(self) -> None:
        """The mode may stay on the stack for now: torch hides it while an op of its own runs, such as `backward`."""
        self.recording = False

    def rest(self) -> None:
        """Off, for the time of something that is not the step's computation."""
        self.recording = False
        if self.live and not self.mode.inside:
            remove(self.mode)
            self.live = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Off for a while, and then as before."""
        recording = self.recording
        self.rest()
        try:
            yield
        finally:
            if self.wanted and not self.trouble:
                self.resume()
                self.recording = self.recording and recording

    def stop(self, why: str) -> None:
        """Nothing of this step is worth keeping."""
        self.trouble = why
        self.recording = False
        self._forget()

    def clear(self) -> None:
        """The step is over, or an optimizer changed what the step was computed with."""
        self.trouble = ""
        self._forget()

    def _forget(self) -> None:
        self.entries = []
        self.losses = []
        self._made = {}
        self._given = {}
        self._slots = self._roots = 0

    # -- what happens ----------------------------------------------------------------------------

    def root(self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module is called and no other one runs: calls it with the mode off."""
        popped = remove(self.mode)
        self.live, was_recording = False, self.recording
        self.recording = False
        entry: Entry | None = None
        forward = self.eager.phase is not Phase.BACKWARD  # else a checkpoint is recomputed
        if forward and self.wanted and not self.trouble and _grad_enabled() and _functorch_level() is None:
            try:
                with _hidden():  # also from modes of the user's
                    entry = self._root(module, args, kwargs)
            except Exception as problem:
                self.eager.session.guard.contain("taping a module", problem)
        try:
            out = call(module, *args, **kwargs)
        finally:
            if popped:
                push(self.mode)
            self.live = True
            self.recording = (was_recording or entry is not None) and not self.trouble
        if entry is not None:
            try:
                with _hidden():
                    self.after_root(module)
                    self.entries.append(entry)
                    entry.outputs = [self._make(tensor) for tensor in tensors_in(out)]
            except Exception as problem:
                self.eager.session.guard.contain("taping a module", problem)
        return out

    def _root(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry | None:
        self._roots += 1
        if self._roots > MOST_ROOTS:
            self.stop(f"the step calls modules more than {MOST_ROOTS} times")
            return None
        entry = Entry(module, self._hold(args), self._hold(kwargs), _generator.get_state())
        self._locate(entry, sys._getframe(3))
        self.before_root(entry, module)
        return entry

    def note(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, random: Tensor | None
    ) -> None:
        """An op outside of modules ran."""
        name: str = func.__name__
        if out is None and name != "__setitem__":
            return
        if in_place(name) or "out" in kwargs:
            target = kwargs.get("out", args[0] if args else None)
            if isinstance(target, Tensor) and id(target) not in self._made:
                self._changed(target)
                return
        if len(self.entries) >= MOST_ENTRIES:
            self.stop(f"the step has more than {MOST_ENTRIES} ops outside of modules")
            return
        if not tensors_in((args, kwargs)) or name.endswith(_MADE) or name.startswith("new_"):
            return  # made from nothing: a value from outside
        entry = Entry(func, self._hold(args), self._hold(kwargs), random)
        self._locate(entry, sys._getframe(3))
        self.entries.append(entry)
        if out is not None:
            entry.outputs = [self._make(tensor) for tensor in tensors_in(out)]

    def differentiate(self, loss: Tensor, plain: Tensor, gradient: Any) -> None:
        """The backward pass begins at `loss`, which is `plain` but for its scale."""
        made = self._made.get(id(loss))
        if made is not None:
            known = self._made.get(id(plain), made)
            self.losses.append((made.slot, known.slot, gradient))

    def slot(self, tensor: Tensor) -> Slot | None:
        made = self._made.get(id(tensor))
        return made.slot if made is not None else None

    def unchanged(self) -> bool:
        """Whether everything that came from outside still holds the values of then."""
        return all(tensor._version == version for tensor, version in self._given.values())

    def _hold(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            key = id(value)
            made = self._made.get(key)
            if made is not None:
                return made.slot
            if key not in self._given:
                self._given[key] = (value, 0 if value.is_inference() else value._version)
            return value
        kind = type(value)
        if kind is tuple or kind is list:
            return kind([self._hold(item) for item in value])
        if kind is dict:
            return {name: self._hold(item) for name, item in value.items()}
        return value

    def _make(self, tensor: Tensor) -> Slot:
        key = id(tensor)
        made = _Made(tensor, self._gone)
        made.key, made.slot = key, Slot(self._slots)
        self._slots += 1
        self._made[key] = made
        self._given.pop(key, None)
        return made.slot

    def _gone(self, made: weakref.ref[Tensor]) -> None:
        if isinstance(made, _Made) and self._made.get(made.key) is made:
            del self._made[made.key]

    def _changed(self, target: Tensor) -> None:
        """Something from outside is written to: what used it before would see the new value."""
        if id(target) in self._given:
            self.stop("a tensor that the step had used was changed in place")

    def _locate(self, entry: Entry, frame: FrameType | None) -> None:
        fallback: FrameType | None = None
        while frame is not None:
            rank = rank_of(frame.f_code)
            if rank == 2:
                break
            if rank == 1 and fallback is None:
                fallback = frame
            frame = frame.f_back
        found = frame or fallback
        if found is not None:
            entry.code, entry.line = found.f_code, found.f_lineno
            entry.owner = module_of(found)
        if _any_autocast():
            entry.autocast = tuple(
                (device, torch.get_autocast_dtype(device))
                for device in ("cpu", "cuda")
                if torch.is_autocast_enabled(device)
            )


class TapeMode(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape = tape
        self.inside = 0
        """How many ops run now from which torch has hidden this mode."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.inside += 1
        try:
            return self._pass(func, args, kwargs)
        finally:
            self.inside -= 1

    def _pass(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        tape = self.tape
        if not tape.recording or not _grad_enabled():
            return func(*args, **kwargs) if kwargs else func(*args)
        name: str = getattr(func, "__name__", "")
        random = _generator.get_state() if name in _RANDOM else None
        out = func(*args, **kwargs) if kwargs else func(*args)
        if not tape.recording or name == "backward":
            return out
        try:
            if isinstance(out, Tensor | tuple | list) or name == "__setitem__":
                if name == "__get__" and getattr(getattr(func, "__self__", None), "__name__", "") in ("grad", "shape"):
                    return out
                if _functorch_level() is not None:
                    tape.stop("torch.func is used outside of modules")
                    return out
                tape.note(func, args, kwargs or {}, out, random)
                if name in _QUESTIONS and isinstance(out, Tensor) and isinstance(args[0], Tensor):
                    _answered(tape, args[0])
            elif name == "item" and type(out) is float and not isfinite(out) and tape.slot(args[0]) is not None:
                tape.asked(args[0])
        except Exception as problem:
            tape.eager.session.guard.contain("taping an op", problem)
        return out


def _answered(tape: Tape, tensor: Tensor) -> None:
    if tensor.device.type == "cpu" and tensor.numel() <= _ASKED_LARGEST and tape.slot(tensor) is not None:
        if not bool(torch.isfinite(tensor.detach()).all()):
            tape.asked(tensor)


def in_place(name: str) -> bool:
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__"))
    return name.endswith("_")
