"""What the code of modules can reach: attributes, containers, closures, globals that functions name, classes, generators.

Reads dictionaries only, and so runs no code of the user's. Data sets and loaders are left out: they may hold millions of
items, and a forward pass does not write to them.
"""

from __future__ import annotations

import functools
import io
import itertools
import queue
import random
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data
from torch import Tensor, nn

from tensonde.adapters.restore.holders import (
    AttributesHolder,
    CellHolder,
    DictHolder,
    Holder,
    ListHolder,
    MemoryHolder,
    NamesHolder,
    SetHolder,
    StateHolder,
    cell_content,
)
from tensonde.adapters.torch.replay.restore.writes import parts_of
from tensonde.program.frames import USER, owner_of, owner_of_file

MOST_OBJECTS = 300_000
_LARGE = 1 << 20
_PLAIN = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, slice, types.CodeType,
        types.BuiltinFunctionType, types.ModuleType, types.GetSetDescriptorType, types.MemberDescriptorType,
        types.WrapperDescriptorType, types.MethodDescriptorType, weakref.ref, torch.dtype, torch.device, torch.Size,
        torch.layout, torch.memory_format,
    }
)  # fmt: skip
_CONTAINERS = (dict, list, set, deque, tuple)
_ITEMS = (list, set, deque, tuple)
_FOREIGN = frozenset(
    {
        "tensonde", "logging", "threading", "_thread", "asyncio", "concurrent", "multiprocessing", "socket", "ssl",
        "subprocess", "sympy", "tqdm", "importlib", "typing", "abc", "enum", "re", "inspect", "_frozen_importlib",
    }
)  # fmt: skip
_FOREIGN_TORCH = ("torch.utils.data", "torch._dynamo", "torch._inductor", "torch.fx", "torch._C")
_LEAVES = (torch.utils.data.Dataset, torch.utils.data.DataLoader, torch.utils.data.Sampler)


class Reach:
    """`trouble` says what makes it impossible to put everything back, if something does."""

    def __init__(self, roots: list[Any]) -> None:
        self.holders: list[Holder] = []
        self.tensors: list[Tensor] = []
        self.opaque: list[tuple[str, Any]] = []
        """Things whose state can be looked at but not set, with their owners."""
        self.trouble = ""
        self._seen: dict[int, Any] = {}
        self._queue: deque[tuple[Any, str, bool]] = deque((root, "the step", True) for root in roots)
        while self._queue and not self.trouble:
            self._visit(*self._queue.popleft())
            if len(self._seen) > MOST_OBJECTS:
                self.trouble = f"its modules reach more than {MOST_OBJECTS} Python objects"
        self._queue.clear()

    def _add(self, value: Any, owner: str, near: bool) -> None:
        if type(value) not in _PLAIN and id(value) not in self._seen:
            self._seen[id(value)] = value
            self._queue.append((value, owner, near))

    def _all(self, values: Any, owner: str, near: bool) -> None:
        for value in values:
            self._add(value, owner, near)

    def _visit(self, value: Any, owner: str, near: bool) -> None:
        kind = type(value)
        if issubclass(kind, Tensor):
            self._tensor(value, owner, near)
        elif issubclass(kind, _CONTAINERS):
            self._container(value, owner, near)
        elif issubclass(kind, types.CellType):
            self.holders.append(CellHolder(value))
            self._add(cell_content(value), owner, near)
        elif kind is types.FunctionType:
            self._function(value, owner, near)
        elif issubclass(kind, type):
            self._class(value, near)
        elif kind is types.MethodType:
            self._all((value.__func__, value.__self__), owner, near)
        elif issubclass(kind, functools.partial):
            self._all((value.func, value.args, value.keywords), owner, near)
        elif issubclass(kind, staticmethod | classmethod):
            self._add(value.__func__, owner, near)
        elif issubclass(kind, property):
            self._all((value.fget, value.fset), owner, near)
        elif issubclass(kind, threading.local):
            self._add(value.__dict__, owner, near)
        elif not self._generator(value) and not self._array(value, owner, near) and not self._memory(value):
            if _is_opaque(value):
                self._opaque(value, owner, near)
            else:
                self._object(value, near)

    def _tensor(self, tensor: Tensor, owner: str, near: bool) -> None:
        self.tensors += [tensor, *parts_of(tensor)]
        with torch._C.DisableTorchFunction():
            held = [getattr(tensor, "_backward_hooks", None), getattr(tensor, "_post_accumulate_grad_hooks", None)]
            if tensor.is_leaf:
                held.append(tensor.grad)
        own = tensor.__dict__
        if own:
            held.append(own)
        self._all(held, owner, near)

    def _container(self, value: Any, owner: str, near: bool) -> None:
        if isinstance(value, dict):
            self.holders.append(DictHolder(value))
            self._all(list(dict.keys(value)), owner, near)
            self._all(list(dict.values(value)), owner, near)
        else:
            if isinstance(value, list | deque):
                self.holders.append(ListHolder(value))
            elif isinstance(value, set):
                self.holders.append(SetHolder(value))
            self._all(_items(value), owner, near)
        if hasattr(value, "__dict__"):
            self._add(vars(value), owner, near)

    def _function(self, function: types.FunctionType, owner: str, near: bool) -> None:
        rank = owner_of(function.__code__)
        if rank == 0 and function.__module__ and function.__module__.startswith("tensonde"):
            return
        self._all(function.__closure__ or (), owner, near)
        self._all(function.__defaults__ or (), owner, near)
        self._all((function.__kwdefaults__, vars(function) or None), owner, near)
        if rank:
            self._globals(function, rank)

    def _globals(self, function: types.FunctionType, rank: int) -> None:
        """Of the user's functions everything that they name; of a library's, what they keep there."""
        names, space = _names(function.__code__), function.__globals__
        own = {name for name in names if name in space} | _stored(function.__code__)
        if rank == 2 and "globals" in names:
            own = set(space)
        if rank == 1:
            own = {name for name in own if isinstance(space.get(name), (*_CONTAINERS, int, float, Tensor))}
        if own:
            self.holders.append(NamesHolder(space, own))
        for name in own:
            value = space.get(name)
            if (
                isinstance(value, types.ModuleType)
                and owner_of_file(getattr(value, "__file__", None) or "<frozen") == USER
            ):
                there = {attribute for attribute in names if attribute in vars(value)}
                self.holders.append(NamesHolder(vars(value), there))
                self._all([vars(value)[attribute] for attribute in there], value.__name__, rank == 2)
            elif isinstance(value, types.ModuleType) and rank == 2:
                self.holders.append(
                    NamesHolder(vars(value), set(_stored(function.__code__, ("STORE_ATTR", "DELETE_ATTR"))))
                )
            else:
                self._add(value, function.__module__ or "", rank == 2)

    def _class(self, cls: type, near: bool) -> None:
        module = sys.modules.get(cls.__module__)
        if not owner_of_file(getattr(module, "__file__", None) or ("" if cls.__module__ == "__main__" else "<frozen")):
            return
        self.holders.append(AttributesHolder(cls, lambda: _class_state(cls)))
        self._all(_class_state(cls).values(), cls.__name__, near)
        self._all(cls.__mro__[1:], cls.__name__, near)

    def _generator(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        if isinstance(value, torch.Generator):
            self.holders.append(StateHolder(value.get_state, value.set_state))
        elif isinstance(value, random.Random):
            self.holders.append(StateHolder(value.getstate, value.setstate))
        elif numpy is not None and isinstance(value, numpy.random.RandomState):
            self.holders.append(StateHolder(value.get_state, value.set_state))
        elif numpy is not None and isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            self.holders.append(StateHolder(lambda: bits.state, lambda state: setattr(bits, "state", state)))
        else:
            return False
        return True

    def _array(self, value: Any, owner: str, near: bool) -> bool:
        """A numpy array is looked after as the tensor that shares its memory."""
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, numpy.ndarray):
            return False
        try:
            if value.flags.writeable:
                self.tensors.append(torch.from_numpy(value))
        except (TypeError, ValueError):  # strings, objects, negative strides
            if value.nbytes <= _LARGE:
                self.holders.append(StateHolder(value.copy, lambda state: value.__setitem__(..., state)))
        return True

    def _memory(self, value: Any) -> bool:
        try:
            view = memoryview(value)
        except (TypeError, ValueError, BufferError):
            return False
        if not view.readonly and view.c_contiguous and view.nbytes <= _LARGE:
            self.holders.append(MemoryHolder(value))
        return isinstance(value, bytearray | memoryview)

    def _opaque(self, value: Any, owner: str, near: bool) -> None:
        what = f"{type(value).__name__} that {owner} holds"
        if not near or (isinstance(value, io.IOBase) and (value.closed or not value.writable())):
            self.opaque.append((what, value))
        elif isinstance(value, io.IOBase):
            self.trouble = f"what is written to the {what} cannot be taken back"
        else:
            self.trouble = f"the {what} cannot be set back"

    def _object(self, value: Any, near: bool) -> None:
        kind = type(value)
        home = kind.__module__ or ""
        if home.split(".")[0] in _FOREIGN or home.startswith(_FOREIGN_TORCH) or issubclass(kind, _LEAVES):
            return
        module = issubclass(kind, nn.Module)
        near, name = near and module, kind.__name__
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            own = None
        if type(own) is dict:
            self._add(own, name, near)
        slots = _slots(kind)  # type: ignore[arg-type]
        if slots:
            self.holders.append(AttributesHolder(value, lambda: _slot_values(value, slots)))
            self._all(_slot_values(value, slots).values(), name, near)
        if module:  # scripted ones keep theirs elsewhere
            for held in ("_parameters", "_buffers"):  # `parameters()` may be a method of the user's
                self._all(getattr(value, held, {}).values(), name, near)
        self._add(kind, name, near or kind.__module__ == "__main__")


def position(value: Any) -> Any:
    """Where a thing that cannot be set back stands, as far as one can tell."""
    try:
        if isinstance(value, types.GeneratorType):
            return value.gi_frame.f_lasti if value.gi_frame is not None else None
        if isinstance(value, io.IOBase):
            return None if value.closed else value.tell()
        return repr(value) if isinstance(value, itertools.count) else value.__length_hint__()
    except (AttributeError, OSError, ValueError, TypeError):
        return None


def _is_opaque(value: Any) -> bool:
    if isinstance(value, io.IOBase | types.GeneratorType | types.CoroutineType | queue.SimpleQueue):
        return True
    return hasattr(type(value), "__next__") and not hasattr(value, "__dict__")


@functools.cache
def _names(code: types.CodeType) -> frozenset[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return frozenset(found)


@functools.cache
def _stored(code: types.CodeType, by: tuple[str, ...] = ("STORE_GLOBAL", "DELETE_GLOBAL")) -> frozenset[str]:
    """Globals that a function assigns to, or attributes; they may not exist yet."""
    import dis

    return frozenset(
        instruction.argval
        for inner in _codes(code)
        for instruction in dis.get_instructions(inner)
        if instruction.opname in by
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


_INTERNAL = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__",
                       "__static_attributes__", "__abstractmethods__", "_abc_impl", "__slots__", "__annotate__",
                       "__annotations_cache__", "__annotate_func__", "__conditional_annotations__"))  # fmt: skip


def _class_state(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if name not in _INTERNAL}


@functools.cache
def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, member)
        for base in kind.__mro__
        for name, member in vars(base).items()
        if type(member) is types.MemberDescriptorType
        and "__slots__" in vars(base)  # members of C types are made anew at each look
    )


def _slot_values(value: Any, slots: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    found = {}
    for name, member in slots:
        try:
            found[name] = member.__get__(value)
        except AttributeError:
            continue
    return found


def _items(value: Any) -> list[Any]:
    """What is in it, past any `__iter__` or `__len__` of the program's: a class made of a tuple may raise there (e3nn's irreps do)."""
    base = next(kind for kind in _ITEMS if isinstance(value, kind))
    return list(base.__iter__(value))
