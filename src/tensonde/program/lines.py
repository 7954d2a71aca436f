"""A line of the user's program as a value (`SourceLine`) and as JSON (`{file, line, code}`): the one converter."""

from __future__ import annotations

import linecache
import os
from collections.abc import Mapping
from functools import lru_cache
from types import CodeType
from typing import Any, overload

from tensonde.model.site import SourceLine

Json = dict[str, Any]

CodeLine = tuple[CodeType, int]
"""A line by its code object: cheap to note while the program runs, readable later."""


def working_directory() -> str:
    """ "" where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def display_path(path: str) -> str:
    """Relative to the working directory where it is inside it."""
    directory = working_directory()
    return _display_path(path, directory) if directory else path


@lru_cache(maxsize=1024)
def _display_path(path: str, directory: str) -> str:
    try:
        relative = os.path.relpath(path, directory)
    except (ValueError, OSError):  # another drive
        return path
    return path if relative.startswith("..") else relative


def code_at(path: str, number: int) -> str:
    """The text of a line, "" where the source cannot be read. Notebook cells are in `linecache`."""
    return linecache.getline(path, number).strip()


def source_line(path: str, number: int) -> SourceLine:
    return SourceLine(display_path(path), number, code_at(path, number))


@overload
def to_json(line: SourceLine) -> Json: ...
@overload
def to_json(line: SourceLine | None) -> Json | None: ...
def to_json(line: SourceLine | None) -> Json | None:
    return None if line is None else {"file": line.file, "line": line.line, "code": line.code}


def from_json(given: Mapping[str, Any] | None) -> SourceLine | None:
    """Of nothing, and of an empty mapping, None. A mapping without file or line raises KeyError."""
    return SourceLine(str(given["file"]), int(given["line"]), str(given.get("code", ""))) if given else None


def from_text(text: str) -> SourceLine | None:
    """Of `file:line`, as `str(SourceLine)` writes it."""
    file, _, line = text.rpartition(":")
    return SourceLine(file, int(line)) if line.isdigit() else None


def line_at(path: str, number: int) -> Json:
    """A line of a file, as facts hold it."""
    return to_json(source_line(path, number))


def line_of(place: CodeLine | None) -> Json | None:
    """A line that was noted by its code, as facts hold it."""
    return None if place is None else line_at(place[0].co_filename, place[1])
