"""What the current step did so far, so that it can be run again: calls of root modules and the ops between them.

The tape keeps what came from outside (data, parameters) by reference and nothing that it can make again, so it
costs no memory worth the name. Its mode sees only code outside of modules: it is taken off for the time of
a root's call, of the optimizer's step, and where a compiler may look at the stack of modes.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.replay.call import Slot, TapedCall, given_by
from tensonde.adapters.torch.replay.memory import TapedMemory, in_place, leaves
from tensonde.adapters.torch.replay.record import MOST_UNLEARNED, TapeMode, look_for_nan
from tensonde.adapters.torch.replay.restore.writes import version_of
from tensonde.adapters.torch.seams.function_mode import look, look_away, transforming, unseen
from tensonde.adapters.torch.seams.vanishing import Keyed, Ref, forgetting
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.moment import Phase
from tensonde.program.frames import is_user

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

MOST_ENTRIES = 2000
MOST_ROOTS = 256
_FRESH = frozenset(
    {
        "zeros",
        "ones",
        "full",
        "eye",
        "arange",
        "linspace",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
    }
)
"""Make the same again from nothing; a loss may be added up in what they give."""
_grad_enabled = torch.is_grad_enabled
_generator = torch.default_generator


class _Made(Keyed[Tensor]):
    __slots__ = ("slot",)
    slot: Slot


class Tape:
    def __init__(self, state: RunState) -> None:
        self.state = state
        self.mode = TapeMode(self)
        self.recording = False
        self.live = False
        """Ops outside of modules are looked at, and no module runs."""
        self._within = False
        """A root runs."""
        self._afterwards = False
        """Whether to look again once it has returned."""
        self.wanted = False
        """May be recorded at all in this step."""
        self.trouble = ""
        """Why this step cannot be run again exactly, if it cannot."""
        self._entries: list[TapedCall] = []
        self.losses: list[tuple[Slot, Slot, Any]] = []
        """What was differentiated so far, the same without loss scaling, and the gradients given."""
        self.asked: Callable[[Tensor], None] = lambda tensor: None
        self.taken_out: Callable[[Tensor], None] = lambda tensor: None
        """The script looks whether a value of the tape is finite, and it is not."""
        self.forward_begins: Callable[[], None] = lambda: None
        """A module is called and no other one runs, in no backward pass."""
        self.before_root: Callable[[TapedCall, nn.Module], None] = lambda entry, module: None
        self.after_root: Callable[[nn.Module], None] = lambda module: None
        self._made: dict[int, _Made] = {}
        self._values: dict[Slot, _Made] = {}
        self._dropped: set[int] = set()
        self._times_cleared = 0
        self._memory = TapedMemory()
        self._given: dict[int, tuple[Tensor, int]] = {}
        self.cost_ns = 0
        """Time spent on the tape since this was last set to 0."""
        self._slots = 0
        self._roots = 0
        self._unlearned = 0
        self._uses = 0
        self._dead = forgetting(self._made)
        self._parts: dict[int, tuple[Ref[nn.Module], set[type[nn.Module]]]] = {}
        """Of roots: the classes of their parts."""

    @property
    def entries(self) -> list[TapedCall]:
        if self._dropped:
            kept = [entry for entry in self._entries if id(entry) not in self._dropped]
            self._memory.taken_off(len(self._entries) - len(kept))
            self._entries, self._dropped = kept, set()
        return self._entries

    @property
    def evaluates(self) -> bool:
        """Modules were called without gradients, and nothing was differentiated: an evaluation, or samples that are drawn."""
        return bool(self._unlearned) and not self.losses

    # -- on and off ------------------------------------------------------------------------------

    def resume(self) -> None:
        """From here on, what happens outside of modules is recorded."""
        if not self.wanted or self.trouble:
            return
        if self._within:
            self._afterwards = True
            return
        if not self.live:
            look(self.mode)
            self.live = True
        self.recording = True

    def pause(self) -> None:
        """What comes now is no part of the step's computation, such as the backward pass."""
        self.recording = False

    def rest(self) -> None:
        """Off, for the time of something that is not the step's computation."""
        self.recording = self._afterwards = False
        if self.live:
            look_away(self.mode)
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

    def end(self) -> None:
        """The training is over."""
        self.wanted = False
        self.rest()
        self._forget()

    def clear(self) -> None:
        """The step is over, or an optimizer changed what the step was computed with."""
        self.trouble = ""
        self._forget()
        self._unlearned = 0

    def _forget(self) -> None:
        self._entries = []
        self.losses = []
        self._made, self._values = {}, {}
        self._dead = forgetting(self._made)
        self._dropped = set()
        self._memory.clear()
        self._given = {}
        self._slots = self._roots = 0
        self._times_cleared += 1

    # -- what happens ----------------------------------------------------------------------------

    def root(self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module is called and no other one runs: calls it with the mode off."""
        began = perf_counter_ns()
        entry: TapedCall | None = None
        forward = self.state.phase is not Phase.BACKWARD  # else a checkpoint is recomputed
        if forward:
            try:
                self.forward_begins()  # of the next step, maybe, which this call is then a part of
            except Exception as problem:
                self.state.session.guard.contain("beginning a step", problem)
        was_recording = self.recording
        self.rest()
        self._within = self._afterwards = True
        if forward and self.wanted and not self.trouble and not transforming() and self._worthwhile():
            try:
                if not _grad_enabled():
                    self._look_at_given(args)
                with unseen():
                    entry = self._root(module, args, kwargs)
            except Exception as problem:
                self.state.session.guard.contain("taping a module", problem)
        cleared = self._times_cleared
        self.cost_ns += perf_counter_ns() - began
        try:
            out = call(module, *args, **kwargs)
        finally:
            self._within = False
            if self._afterwards:
                look(self.mode)
                self.live = True
                self.recording = (was_recording or entry is not None) and not self.trouble
        if entry is not None and cleared != self._times_cleared:
            self.stop("an optimizer stepped inside of a module")
        elif entry is not None:
            began = perf_counter_ns()
            try:
                with unseen():
                    self.after_root(module)
                    self._entries.append(entry)
                    entry.outputs = [self._make(tensor) for tensor in given_by(out)]
            except Exception as problem:
                self.state.session.guard.contain("taping a module", problem)
            self.cost_ns += perf_counter_ns() - began
        return out

    def _worthwhile(self) -> bool:
        """Without gradients a module may compute targets, or be evaluated over and over, which is no part of
        the step."""
        if _grad_enabled():
            return True
        self._unlearned += 1
        if self._unlearned == MOST_UNLEARNED:
            self._forget()
        return self._unlearned < MOST_UNLEARNED

    def _look_at_given(self, args: tuple[Any, ...]) -> None:
        """A model without gradients is given what the script computed from its last answer, as samplers do: NaN there is younger than
        that answer, and its origin is still on the tape."""
        for given in args:
            if isinstance(given, Tensor) and id(given) in self._made:
                look_for_nan(self, given)

    def _root(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TapedCall | None:
        self._roots += 1
        if self._roots > MOST_ROOTS:
            self.stop(f"the step calls modules more than {MOST_ROOTS} times")
            return None
        entry = TapedCall(
            module, self._hold(args), self._hold(kwargs) if kwargs else kwargs, _generator.get_state(), sys._getframe(3)
        )
        if any(_draws(kind) for kind in self._kinds(module)):
            entry.python = random.getstate()
        self.before_root(entry, module)
        return entry

    def _kinds(self, module: nn.Module) -> set[type[nn.Module]]:
        known = self._parts.get(id(module))
        if known is None or known[0]() is not module:
            known = self._parts[id(module)] = Ref(module), {type(part) for part in module.modules()}
        return known[1]

    def note(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        random: Tensor | None,
        frame: FrameType,
    ) -> None:
        """An op outside of modules ran."""
        name: str = func.__name__
        if (
            name == "__deepcopy__"
        ):  # a copy is a value from outside; the memo beside it holds all that was copied before
            return
        if in_place(name) or "out" in kwargs:
            if name == "__set__" and getattr(getattr(func, "__self__", None), "__name__", "") != "data":
                return
            if self._wrote(kwargs.get("out", args[0] if args else None)):
                return
        elif out is None:
            return
        if len(self._entries) >= MOST_ENTRIES and len(self.entries) >= MOST_ENTRIES:
            self.stop(f"the step has more than {MOST_ENTRIES} ops outside of modules")
            return
        some = self._uses
        held = [self._hold(value) for value in args]
        named = self._hold(kwargs) if kwargs else kwargs
        if (self._uses == some or name.endswith("_like") or name.startswith("new_")) and name not in _FRESH:
            return  # made from nothing, at random maybe: a value from outside
        entry = TapedCall(func, held, named, random, frame)
        self._entries.append(entry)
        if type(out) is Tensor:
            entry.outputs = (self._make(out),)
        elif out is not None:
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

    def alive(self, slots: list[Slot]) -> list[tuple[Slot, Tensor]]:
        """The tensors of these slots that the training still holds."""
        held = [(made.slot, made()) for made in list(self._made.values()) if made.slot in slots]
        return [(slot, value) for slot, value in held if value is not None]

    def unchanged(self) -> bool:
        """Whether everything that came from outside still holds the values of then."""
        return all(version < 0 or tensor._version == version for tensor, version in self._given.values())

    def _hold(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            self._uses += 1
            key = id(value)
            made = self._made.get(key)
            if made is not None:
                return made.slot
            if key not in self._given:
                self._given[key] = (value, version_of(value))
            return value
        kind = type(value)
        if kind is tuple or kind is list:
            return kind([self._hold(item) for item in value])
        if kind is dict:
            return {name: self._hold(item) for name, item in value.items()}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):  # a packed sequence, for one
            return tuple.__new__(kind, [self._hold(item) for item in value])
        return value

    def _make(self, tensor: Tensor) -> Slot:
        key = id(tensor)
        made = _Made(tensor, self._dead)
        made.key, made.slot = key, Slot(self._slots)
        self._slots += 1
        self._made[key] = self._values[made.slot] = made
        self._given.pop(key, None)
        return made.slot

    def _wrote(self, targets: Any) -> bool:
        """Whether an op wrote to memory from outside: it must not run again, and what used that memory before would see
        the new values."""
        memory = self._memory
        memory.look(self._entries)
        outside, made = [], False
        for target in leaves(targets):
            if id(target) in self._made and not memory.is_foreign(target):
                made = True
            else:
                outside.append(target)
        if outside and made:
            self.stop("an op wrote both to what the step had made and to what it had not")
        elif any(memory.is_owned(target) for target in outside):
            self.stop("a weight or buffer of a module that the step had called was changed in place")
        elif not all(self._settle(target) for target in outside):
            self.stop("a tensor that the step had used was changed in place")
        return bool(outside)

    def _settle(self, target: Tensor) -> bool:
        """Takes what came of the memory of `target` as values from outside, as long as it is only data being prepared: also what a model without
        buffers has answered without gradients, as where a policy acts and its environment moves on in place."""
        self._given.pop(id(target), None)
        for entry in self._memory.affected(target):
            for item in leaves((entry.args, entry.kwargs)):
                self._given.pop(id(item), None)  # those that are used again come back with the version of then
            values = {slot: self._values[slot]() for slot in entry.outputs if slot in self._values}
            if any(v is not None and v.requires_grad for v in values.values()) or not _only_answers(entry):
                return False
            self._dropped.add(id(entry))
            for slot, value in values.items():
                made = self._values.pop(slot)
                if value is not None and self._made.get(made.key) is made:
                    del self._made[made.key]
                    self._given[made.key] = (value, version_of(value))
        return True


def _only_answers(entry: TapedCall) -> bool:
    """An op; or a model that was asked without gradients and keeps nothing of it."""
    return not isinstance(entry.call, nn.Module) or (not entry.grad and next(entry.call.buffers(), None) is None)


_DRAWING: dict[type, bool] = {}


def _draws(kind: type) -> bool:
    """Whether a method of the user's draws from Python's `random`, as for teacher forcing."""
    if kind not in _DRAWING:
        methods = [f for base in kind.__mro__ for f in vars(base).values() if isinstance(f, FunctionType)]
        used = [f.__globals__.get(name) for f in methods if is_user(f.__code__) for name in f.__code__.co_names]
        drawn = (random, random.random, random.randint, random.choice)
        _DRAWING[kind] = any(value is function for value in used for function in drawn)
    return _DRAWING[kind]
