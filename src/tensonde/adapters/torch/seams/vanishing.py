"""Callbacks for objects that go: what they leave in dictionaries goes with them.

A callback may run while the interpreter takes modules apart at its end, when their names are None already. So every callback of a
weak reference in the adapter is made here, and uses nothing but what it was given.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import torch.utils
from torch.utils.weak import WeakIdRef

from tensonde.adapters.torch import seams

Thing = TypeVar("Thing")


class Ref(weakref.ref[Thing]):
    """Every weak reference to a tensor that Tensonde holds: `torch.utils.swap_tensors` refuses tensors that have any, and is not to see ours."""

    __slots__ = ()


class Keyed(Ref[Thing]):
    """One that knows the id of what it refers to, so that thousands can share a callback: a closure for each would be four more objects
    that the garbage collector looks through."""

    __slots__ = ("key",)
    key: int


def keyed(thing: Thing, gone: Callable[[Any], None]) -> Keyed[Thing]:
    reference = Keyed(thing, gone)
    reference.key = id(thing)
    return reference


class IdRef(WeakIdRef):  # type: ignore[misc]
    """The same, for a dictionary by identity."""

    __slots__ = ()


def make_way_for_swaps() -> None:
    """Once in a process. A tensor that is swapped stays the same object, so what we know of it stays true."""

    def of_the_program(thing: Any) -> list[Any]:
        return [reference for reference in weakref.getweakrefs(thing) if not isinstance(reference, Ref | IdRef)]

    without_ours = SimpleNamespace(**{**vars(weakref), "getweakrefs": of_the_program})
    seams.put(torch.utils, "weakref", without_ours, "let swap_tensors swap what we refer to")


def forgetting(*homes: dict[int, Any]) -> Callable[[Any], None]:
    """For `Keyed` references that stand in the first of `homes`, and whose key may stand in the others, if they are still what is there."""
    first, others = homes[0], homes[1:]

    def gone(reference: Any) -> None:
        key = reference.key
        if first.get(key) is reference:
            del first[key]
            for home in others:
                home.pop(key, None)

    return gone


def forgetting_keys(*homes: dict[int, Any] | set[int]) -> Callable[[Any], None]:
    """For `Keyed` references to objects that are known by their ids in all of `homes`."""
    drops = [(home.discard, ()) if isinstance(home, set) else (home.pop, (None,)) for home in homes]

    def gone(reference: Any) -> None:
        for drop, default in drops:
            drop(reference.key, *default)

    return gone
