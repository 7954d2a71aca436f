"""Numbers and words that the code of modules reads from globals and from attributes, as they were when a step ran.

A step of a device is run again when the next one has ended. By then the script may have moved on: `temperature = schedule(step)` at the top of a file is another
number. Such values are few and cheap to note, so they are noted in every step that is kept; what is mutable is not.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from tensonde.program.frames import is_user_file

MOST = 512
MOST_KNOWN = 8
_SCALARS = frozenset({type(None), bool, int, float, complex, str})
_MISSING = object()
Place = tuple[dict[str, Any], str]
Sought = tuple[dict[str, Any] | weakref.ref[nn.Module], str]
"""A `Place` that does not keep its module alive."""


class Scalars:
    """Of the modules that a training calls, none of which it keeps alive. Belongs to the training thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[list[weakref.ref[nn.Module]], list[Sought]]] = {}
        """By what a step calls: the steps of several optimizers take turns."""

    def now(self, roots: Sequence[Any]) -> Noted:
        modules = [root for root in roots if isinstance(root, nn.Module)]
        key = tuple([id(module) for module in modules])
        known = self._known.get(key)
        if known is None or any(a is not b() for a, b in zip(modules, known[0], strict=True)):
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = [weakref.ref(module) for module in modules], sought_in(modules)
        places: list[Place] = []
        for held, name in known[1]:
            if isinstance(held, dict):
                places.append((held, name))
            elif (module := held()) is not None:
                places.append((module.__dict__, name))
        return Noted(places)


class Noted:
    def __init__(self, places: list[Place]) -> None:
        self._places = places
        self._values = [held.get(name, _MISSING) for held, name in places]

    @contextmanager
    def as_then(self) -> Iterator[None]:
        """They are what they were, and what they are again afterwards."""
        changed = []
        for (held, name), then in zip(self._places, self._values, strict=True):
            now = held.get(name, _MISSING)
            if now is not then and type(now) in _SCALARS and type(then) in _SCALARS:
                changed.append((held, name, now))
                held[name] = then
        try:
            yield
        finally:
            for held, name, now in changed:
                held[name] = now


def sought_in(roots: Sequence[nn.Module]) -> list[Sought]:
    """Where forward functions of the user's, and functions of the user's that they call, read a number or a word."""
    found: dict[tuple[int, str], Sought] = {}
    seen: set[int] = set()
    for root in roots:
        for module in root.modules():
            forward = getattr(type(module), "forward", None)
            if not isinstance(forward, FunctionType) or not is_user_file(forward.__code__.co_filename):
                continue
            _follow(forward, found, seen)
            own = module.__dict__
            for name in _names(forward.__code__):
                if type(own.get(name, _MISSING)) in _SCALARS:
                    found[id(own), name] = weakref.ref(module), name
            if len(found) > MOST:
                return list(found.values())[:MOST]
    return list(found.values())


def _follow(function: FunctionType, found: dict[tuple[int, str], Sought], seen: set[int]) -> None:
    if id(function.__code__) in seen or not is_user_file(function.__code__.co_filename):
        return
    seen.add(id(function.__code__))
    held = function.__globals__
    for name in _names(function.__code__):
        value = held.get(name, _MISSING)
        if type(value) in _SCALARS:
            found[id(held), name] = held, name
        elif isinstance(value, FunctionType):
            _follow(value, found, seen)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
