"""Python state that can be put back: each holder knows what one object held, by identity of the items.

Items that can change themselves have holders of their own, so a holder compares and restores only its own level.
"""

from __future__ import annotations

import pickle
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable
from types import CellType
from typing import Any

_MISSING = object()


class Holder:
    """`changed` looks, `restore` puts back. Neither runs code of the user's."""

    __slots__ = ()

    def changed(self) -> bool:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def describe(self) -> str:
        target = getattr(self, "_target", None)
        return f"a {type(target).__name__}" if target is not None else "a random generator"


class DictHolder(Holder):
    """A dictionary of any kind, among them the attributes of an object. Its order counts."""

    __slots__ = ("_base", "_items", "_target")

    def __init__(self, target: dict[Any, Any]) -> None:
        self._target = target
        self._base: Any = OrderedDict if isinstance(target, OrderedDict) else dict
        self._items = list(self._base.items(target))

    def changed(self) -> bool:
        return not self._same_keys() or any(
            now is not was for now, (_, was) in zip(self._base.values(self._target), self._items, strict=True)
        )

    def restore(self) -> None:
        if not self._same_keys():
            self._base.clear(self._target)
        for key, value in self._items:
            self._base.__setitem__(self._target, key, value)

    def _same_keys(self) -> bool:
        return len(self._target) == len(self._items) and all(
            now is was for now, (was, _) in zip(self._base.keys(self._target), self._items, strict=True)
        )


class ListHolder(Holder):
    __slots__ = ("_items", "_target")

    def __init__(self, target: list[Any] | deque[Any]) -> None:
        self._target = target
        self._items = list(target)

    def changed(self) -> bool:
        return len(self._target) != len(self._items) or any(
            now is not was for now, was in zip(self._target, self._items, strict=True)
        )

    def restore(self) -> None:
        if isinstance(self._target, list):
            list.__setitem__(self._target, slice(None), self._items)
        else:
            deque.clear(self._target)
            deque.extend(self._target, self._items)


class SetHolder(Holder):
    __slots__ = ("_items", "_target")

    def __init__(self, target: set[Any]) -> None:
        self._target = target
        self._items = set(target)

    def changed(self) -> bool:
        return {id(item) for item in self._target} != {id(item) for item in self._items}

    def restore(self) -> None:
        set.clear(self._target)
        set.update(self._target, self._items)


class MemoryHolder(Holder):
    """What shows its memory and may be written to: `bytearray`, `array.array`, values of ctypes, memory views."""

    __slots__ = ("_content", "_target")

    def __init__(self, target: Any) -> None:
        self._target = target
        self._content = bytes(memoryview(target))

    def changed(self) -> bool:
        return bytes(memoryview(self._target)) != self._content

    def restore(self) -> None:
        if memoryview(self._target).nbytes == len(self._content):
            memoryview(self._target).cast("B")[:] = self._content
        elif isinstance(self._target, array):
            del self._target[:]
            self._target.frombytes(self._content)
        else:
            self._target[:] = self._content


class CellHolder(Holder):
    """A variable of a closure."""

    __slots__ = ("_content", "_target")

    def __init__(self, target: CellType) -> None:
        self._target = target
        self._content = cell_content(target, _MISSING)

    def changed(self) -> bool:
        return cell_content(self._target, _MISSING) is not self._content

    def restore(self) -> None:
        if self._content is _MISSING:
            del self._target.cell_contents
        else:
            self._target.cell_contents = self._content


class NamesHolder(Holder):
    """Some names of a dictionary: the globals that a function uses."""

    __slots__ = ("_items", "_target")

    def __init__(self, target: dict[str, Any], names: set[str]) -> None:
        self._target = target
        self._items = {name: target.get(name, _MISSING) for name in names}

    def changed(self) -> bool:
        return any(self._target.get(name, _MISSING) is not was for name, was in self._items.items())

    def restore(self) -> None:
        for name, was in self._items.items():
            if was is _MISSING:
                self._target.pop(name, None)
            else:
                self._target[name] = was


class AttributesHolder(Holder):
    """Attributes that are not in a dictionary of the object's: those of a class, and slots."""

    __slots__ = ("_get", "_items", "_target")

    def __init__(self, target: Any, get: Callable[[], dict[str, Any]]) -> None:
        self._target, self._get = target, get
        self._items = get()

    def changed(self) -> bool:
        now = self._get()
        return now.keys() != self._items.keys() or any(now[name] is not was for name, was in self._items.items())

    def restore(self) -> None:
        write, delete = (
            (type.__setattr__, type.__delattr__)
            if isinstance(self._target, type)
            else (object.__setattr__, object.__delattr__)
        )
        now = self._get()
        for name in now.keys() - self._items.keys():
            delete(self._target, name)
        for name, was in self._items.items():
            if now.get(name, _MISSING) is not was:
                write(self._target, name, was)


class StateHolder(Holder):
    """Something with a state that can be read and set as a whole: a random generator."""

    __slots__ = ("_get", "_set", "_state")

    def __init__(self, get: Callable[[], Any], set_: Callable[[Any], Any]) -> None:
        self._get, self._set = get, set_
        self._state = get()

    def changed(self) -> bool:
        return _bytes(self._get()) != _bytes(self._state)

    def restore(self) -> None:
        self._set(self._state)


def _bytes(state: Any) -> bytes:
    if isinstance(state, list):  # of several devices
        return b"".join(map(_bytes, state))
    return pickle.dumps(state.tolist() if hasattr(state, "tolist") else state)


def cell_content(cell: CellType, default: Any = None) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was bound yet
        return default
