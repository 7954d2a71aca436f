"""The user's program, seen from inside a hook: which line runs, and what the user calls an object."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

import torch

import tensonde.version
from tensonde.model.paths import display_path as display_path
from tensonde.model.paths import is_library
from tensonde.model.site import SourceLine

_OURS = os.path.dirname(os.path.abspath(tensonde.__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

_owner: dict[
    str, int
] = {}  # by file, for equal code may stand in two; 0: Tensonde or torch, 1: another library, 2: the user


def rank_of(code: CodeType) -> int:
    """Whose code it is: 0 Tensonde's or torch's, 1 another library's, 2 the user's."""
    return rank_of_file(code.co_filename)


def rank_of_file(name: str) -> int:
    known = _owner.get(name)
    if known is None:
        path = os.path.abspath(name)
        if path.startswith((_OURS, _TORCH)) or name.startswith("<frozen"):
            known = 0
        elif is_library(path):
            known = 1
        else:
            known = 2
        _owner[name] = known
    return known


def is_user(code: CodeType) -> bool:
    return rank_of(code) == 2


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OURS)


def foreign_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames that are neither Tensonde's nor torch's, innermost first."""
    while frame is not None:
        if rank_of(frame.f_code):
            yield frame
        frame = frame.f_back


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame of the user's own code; of some library where the user has none on the stack."""
    fallback: FrameType | None = None
    for candidate in foreign_frames(frame or sys._getframe(1)):
        if is_user(candidate.f_code):
            return candidate
        fallback = fallback or candidate
    return fallback


def line_of(frame: FrameType | None) -> SourceLine | None:
    if frame is None:
        return None
    path, line = frame.f_code.co_filename, frame.f_lineno
    return SourceLine(display_path(path), line, linecache.getline(path, line).strip())


def user_line() -> SourceLine | None:
    return line_of(user_frame(sys._getframe(1)))
