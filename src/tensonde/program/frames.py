"""Whose code a frame runs, and which line of the user's program is running."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType, FrameType

from tensonde.model.site import SourceLine
from tensonde.program.lines import CodeLine, source_line

FRAMEWORK, LIBRARY, USER = 0, 1, 2
"""Whose code: Tensonde's or the observed framework's, another library's, the user's."""

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib"))
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

_frameworks: dict[str, str] = {}
"""Folders of registered packages, by the package's name."""
_owner: dict[str, int] = {}
"""By file, for equal code may stand in two."""


def register(name: str, file: str) -> None:
    """Frames of this package count as the framework's: `register("torch", torch.__file__)`."""
    _frameworks[name] = os.path.dirname(os.path.abspath(file)) + os.sep
    _owner.clear()


def is_framework(module: str) -> bool:
    """Whether a module, by its dotted name, belongs to a registered package."""
    return module.partition(".")[0] in _frameworks


def is_library(path: str) -> bool:
    """Whether a file is installed, and not the user's own program. Packages of the user's site, of the system's Python and
    of other environments on the path count, too, and compiled Cython, whose frames name a source that was left behind."""
    if path.endswith((".pyx", ".pxd")) and not os.path.exists(path):
        return True
    path = _absolute(path)
    return path.startswith(_LIBRARIES) or any(name in path for name in _INSTALLED)


def _absolute(path: str) -> str:
    """As it is, where the working directory has been removed."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def owner_of(code: CodeType) -> int:
    """FRAMEWORK, LIBRARY or USER."""
    return owner_of_file(code.co_filename)


def owner_of_file(name: str) -> int:
    known = _owner.get(name)
    if known is None:
        path = _absolute(name)
        if path.startswith((_OURS, *_frameworks.values())) or name.startswith("<frozen"):
            known = FRAMEWORK
        elif is_library(path):
            known = LIBRARY
        else:
            known = USER
        _owner[name] = known
    return known


def is_user(code: CodeType) -> bool:
    return owner_of(code) == USER


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OURS)


def library_of(frame: FrameType | None) -> str:
    """The package whose code runs there; empty for the user's own."""
    if frame is None or is_user(frame.f_code):
        return ""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def foreign_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames that are neither Tensonde's nor the framework's, innermost first."""
    while frame is not None:
        if owner_of(frame.f_code):
            yield frame
        frame = frame.f_back


def is_user_file(path: str) -> bool:
    if path.startswith("<"):  # made by exec, of which only a notebook's cells have source
        return not path.startswith("<frozen") and bool(linecache.getlines(path))
    return owner_of_file(path) == USER


def user_frames(frame: FrameType | None) -> list[FrameType]:
    """Frames of the user's own code, innermost first."""
    found = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame of the user's own code; of some library where the user has none on the stack."""
    fallback: FrameType | None = None
    for candidate in foreign_frames(frame or sys._getframe(1)):
        if is_user(candidate.f_code):
            return candidate
        fallback = fallback or candidate
    return fallback


def let_go(frame: FrameType | None) -> None:
    """Before Python 3.13, who reads the variables of a function's frame leaves a copy of them in the frame, which keeps what they held
    alive for as long as the function runs: the tensors of a step. This empties these copies, from `frame` outwards. A copy that
    other code has (`locals()`) stays, and all do under a trace function, which writes them back."""
    if sys.version_info >= (3, 13) or sys.gettrace() is not None:
        return
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            copy = frame.f_locals
            if sys.getrefcount(copy) <= 3:  # the frame's, ours and the question's own
                copy.clear()
        frame = frame.f_back


def frame_line(frame: FrameType | None) -> SourceLine | None:
    """The line that a frame has come to."""
    return None if frame is None else source_line(frame.f_code.co_filename, frame.f_lineno)


def user_line() -> SourceLine | None:
    return frame_line(user_frame(sys._getframe(1)))


def user_place(frame: FrameType | None, *, making: object = None) -> CodeLine | None:
    """The innermost frame of the user's own code; not the `__init__` of the object that is being made."""
    while frame is not None:
        code = frame.f_code
        if is_user(code) and not (making is not None and _is_init_of(frame, making)):
            return code, frame.f_lineno
        frame = frame.f_back
    return None


def user_path(frame: FrameType | None, most: int) -> list[CodeLine]:
    """The innermost frames of the user's own code, innermost first. Takes long: some 0.4 µs per frame of the stack."""
    found: list[CodeLine] = []
    while frame is not None and len(found) < most:
        if is_user(frame.f_code):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def way_of(path: list[CodeLine]) -> tuple[int, ...]:
    """The same for the same path. A code object takes long to hash."""
    return tuple([part for code, line in path for part in (id(code), line)])


def near_way(frame: FrameType | None) -> tuple[CodeLine | None, tuple[int, ...]]:
    """The innermost frame of the user's own code, and by which calls those that called it, with no other code between, came to it. Quick: the line of
    a caller takes longer to find than its instruction."""
    owner = _owner.get
    while frame is not None:
        code = frame.f_code
        known = owner(code.co_filename)
        if (owner_of(code) if known is None else known) == USER:
            break
        frame = frame.f_back
    else:
        return None, ()
    place, caller = (code, frame.f_lineno), frame.f_back
    way: list[int] = []
    while caller is not None and len(way) < 8:
        code = caller.f_code
        if owner(code.co_filename) != USER:
            break
        way.append(id(code))
        way.append(caller.f_lasti)
        caller = caller.f_back
    return place, tuple(way)


def birth_place(frame: FrameType | None, making: object) -> CodeLine | None:
    """The same; of some library where the user has none on the stack."""
    found = user_place(frame, making=making)
    if found is None:
        library = next((other for other in foreign_frames(frame) if not is_user(other.f_code)), None)
        found = (library.f_code, library.f_lineno) if library is not None else None
    return found


def _is_init_of(frame: FrameType, thing: object) -> bool:
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is thing
