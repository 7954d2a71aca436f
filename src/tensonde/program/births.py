"""Where the user's program made its objects.

Objects are known by id with a weak reference, so that nothing is kept alive and no object carries a mark of ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tensonde.program.frames import is_user
from tensonde.program.lines import CodeLine, Json, line_of


class Births:
    """Objects and the lines that made them. Called by any thread; each call is one dictionary write.

    `reference` makes the weak references; a framework may have to tell ours from the program's."""

    def __init__(self, reference: Callable[[Any, Callable[[Any], None]], Any] = weakref.ref) -> None:
        self._reference = reference
        self._places: dict[int, tuple[Any, CodeLine]] = {}
        self._forgetting = _forgetting(self._places)
        self.files: dict[str, None] = {}
        """The user's files that made them; they stay when the objects are gone."""

    def note(self, thing: Any, place: CodeLine | None) -> None:
        if place is not None:
            key = id(thing)
            if is_user(place[0]):
                self.files.setdefault(place[0].co_filename)
            self._places[key] = (self._reference(thing, self._forgetting(key)), place)

    def anywhere(self, thing: Any) -> CodeLine | None:
        """Also the line of a library, where the user had none on the stack."""
        found = self._places.get(id(thing))
        return found[1] if found is not None and found[0]() is thing else None

    def place(self, thing: Any) -> CodeLine | None:
        """The user's line."""
        found = self.anywhere(thing)
        return found if found is not None and is_user(found[0]) else None

    def line(self, thing: Any) -> Json | None:
        return line_of(self.place(thing))

    def __iter__(self) -> Iterator[Any]:
        """The objects that are alive, in the order made."""
        for reference, _ in list(self._places.values()):
            thing = reference()
            if thing is not None:
                yield thing


def _forgetting(places: dict[int, Any]) -> Callable[[int], Callable[[Any], None]]:
    """Makes callbacks, which may run while the interpreter takes modules apart: they use nothing but what they were given."""
    forget = places.pop

    def forgetting(key: int) -> Callable[[Any], None]:
        def gone(_: Any) -> None:
            forget(key, None)

        return gone

    return forgetting
