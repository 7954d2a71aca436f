"""Room on the stack for Tensonde's own frames, so that a program that nests deeply nests as deeply as without Tensonde.

A module that is called inside another takes four of Python's frames; when it is observed, seven, and in a traced step about ten. With
the limit that the program has, models of a hundred levels (trees, recursive networks) would end by RecursionError. So the
limit is higher than the program's, which is what `sys.getrecursionlimit` goes on to say.
"""

from __future__ import annotations

import functools
import sys

_TIMES, _MOST = 3, 6000
"""More frames than the program has, in proportion and at most: whoever raises the limit to tens of thousands is
near the end of the real stack."""

_get, _set = sys.getrecursionlimit, sys.setrecursionlimit
_programs = 0
"""The limit as the program has set it; 0 until there is room."""


def make_room() -> None:
    """From now on, for all threads."""
    global _programs
    if not _programs:
        _programs = _get()
        sys.getrecursionlimit, sys.setrecursionlimit = _programs_get, _programs_set
        _set(_with_room(_programs))


def _with_room(limit: int) -> int:
    return min(limit + min(_TIMES * limit, _MOST), 2**31 - 1)


@functools.wraps(_get)
def _programs_get() -> int:
    real = _get()
    return _programs if real == _with_room(_programs) else real  # set by a name that was imported before


@functools.wraps(_set)
def _programs_set(limit: int, /) -> None:
    global _programs
    if not isinstance(limit, int) or not 0 < limit < 2**31:
        _set(limit)  # raises what it always raises
        return
    _set(_with_room(limit))
    _programs = limit
