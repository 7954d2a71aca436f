"""Reading a frame's variables must not keep what they held alive."""

from __future__ import annotations

import sys
import weakref

from tensonde.program.frames import let_go


class Thing:
    pass


def look(outwards: int = 1) -> None:
    sys._getframe(outwards).f_locals  # noqa: B018


def test_what_a_variable_held_goes_when_it_is_set_anew() -> None:
    def training() -> None:
        thing = Thing()
        seen = weakref.ref(thing)
        look(2)
        let_go(sys._getframe())
        thing = Thing()
        assert isinstance(thing, Thing)
        assert seen() is None

    training()


def test_variables_keep_their_values() -> None:
    first, second = 1, "two"
    look(2)
    let_go(sys._getframe())
    assert (first, second) == (1, "two")
    assert sys._getframe().f_locals["second"] == "two"


def test_a_copy_that_the_program_has_stays() -> None:
    first = 1
    own = locals()
    let_go(sys._getframe())
    assert own["first"] == first


def test_nothing_is_touched_under_a_trace_function() -> None:
    first = 1
    before = sys.gettrace()

    def trace(frame: object, event: str, argument: object) -> object:
        let_go(sys._getframe(1))
        return trace

    sys.settrace(trace)
    try:
        first += 1
    finally:
        sys.settrace(before)
    assert first == 2
