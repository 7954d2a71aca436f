"""Where the user's program made things: modules, optimizers, schedulers, loaders, initial values.

Noted from the moment that torch is imported, before there is a session: most of it is made before the training begins.
Objects are known by id with a weak reference, so that nothing is kept alive and no object carries a mark of ours.
"""

from __future__ import annotations

import linecache
import weakref
from types import CodeType, FrameType
from typing import Any

from tensonde.adapters.torch.frames import display_path, is_user
from tensonde.adapters.torch.vanishing import Ref, forgetting_key

Place = tuple[CodeType, int]


def user_place(frame: FrameType | None, *, making: object = None) -> Place | None:
    """The innermost frame of the user's own code; not the `__init__` of what is being made."""
    while frame is not None:
        code = frame.f_code
        if is_user(code) and not (making is not None and _is_init_of(frame, making)):
            return code, frame.f_lineno
        frame = frame.f_back
    return None


def _is_init_of(frame: FrameType, thing: object) -> bool:
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is thing


def line(place: Place | None) -> dict[str, Any] | None:
    """As it stands in the facts: file, line, code."""
    if place is None:
        return None
    code, number = place
    return line_at(code.co_filename, number)


def line_at(path: str, number: int) -> dict[str, Any]:
    return {"file": display_path(path), "line": number, "code": linecache.getline(path, number).strip()}


class Origins:
    """Things and the places where they were made. Called by any thread; each call is one dictionary write."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[weakref.ref[Any], Place]] = {}
        self.files: dict[str, None] = {}
        """In which files; they stay when the things are gone."""

    def note(self, thing: Any, place: Place | None) -> None:
        if place is not None:
            key = id(thing)
            self.files.setdefault(place[0].co_filename)
            self._places[key] = (Ref(thing, forgetting_key(key, self._places)), place)

    def place(self, thing: Any) -> Place | None:
        found = self._places.get(id(thing))
        return found[1] if found is not None and found[0]() is thing else None

    def line(self, thing: Any) -> dict[str, Any] | None:
        return line(self.place(thing))


class Known:
    """What was made so far in this process."""

    def __init__(self) -> None:
        self.made = Origins()
        """Modules, optimizers, schedulers, loaders."""
        self.filled = Origins()
        """Parameters, by the `nn.init` call that filled them last."""
        self.recipes: dict[int, str] = {}
        """That call, as text, by the parameter's id: good while `filled` knows the parameter."""
        self.cast = Origins()
        """Modules, by the call that changed their dtype."""
        self.restored = Origins()
        """Optimizers, by the last call that loaded a state into them."""
        self.evaluated = Origins()
        """Modules, by the last call of `eval()`."""
        self.schedulers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.loaders: weakref.WeakSet[Any] = weakref.WeakSet()
        self.scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.numbers: dict[int, int] = {}
        """Optimizers and schedulers by id: in which order they were made. A number outlives its object."""
        self.loaded: set[int] = set()
        """Modules that a state was loaded into, by id."""
        self.loaded_itself: dict[Place, tuple[str, int]] = {}
        """Lines that load a module from tensors that are its own: its type, and how often."""
        self.stepped: set[int] = set()
        """Optimizers that have stepped, by number."""
        self.compiled = False
        self._last = -1

    def files(self) -> list[str]:
        """The user's files that made modules and optimizers."""
        return list(self.made.files)[:8]

    def number(self, thing: Any) -> int:
        return self.numbers.get(id(thing), -1)

    def count(self, thing: Any) -> int:
        """Numbers a thing that was just made."""
        self._last = self.numbers[id(thing)] = self._last + 1
        return self._last


KNOWN = Known()
