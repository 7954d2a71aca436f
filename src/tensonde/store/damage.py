"""The boundary between files, which may hold anything, and the rest of Tensonde, which relies on what it is given.

Readers open files with `open_file` and read them inside `reading`, so that whatever damage makes a parser raise becomes one sentence that
names the file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tensonde.errors import RecordingError, TensondeError
from tensonde.store.format import COMPRESSED

_LONGEST = 300
MOST_EXPANDED = 1 << 30


def open_file(path: Path, buffering: int = -1) -> IO[bytes]:
    """A regular file, for reading. Raises OSError for anything else: a pipe would wait for a writer, a device may never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb", buffering)
    except BaseException:
        os.close(handle)
        raise


def check_file(path: Path) -> None:
    """For libraries that open files themselves. Raises OSError as `open_file` does."""
    _check(os.stat(path).st_mode, path)


def _check(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, and no file", str(path))


def read_file(path: Path) -> bytes:
    """All of a regular file, as it was before it was compressed. Raises OSError."""
    with open_file(path) as file:
        if path.suffix != COMPRESSED:
            return file.read()
        import gzip
        import zlib

        try:
            with gzip.open(file) as expanded:
                content: bytes = expanded.read(MOST_EXPANDED + 1)
        except (EOFError, zlib.error) as problem:
            raise OSError(errno.EIO, f"what was compressed is damaged ({problem})", str(path)) from None
        if len(content) > MOST_EXPANDED:
            raise OSError(errno.EFBIG, "it expands to more than a recording holds", str(path))
        return content


@contextmanager
def reading(path: Path | str, what: str = "") -> Iterator[None]:
    """Raises RecordingError, naming `path` (as `what`, such as "a safetensors file"), for whatever goes wrong inside.

    Any exception counts: any bytes may stand in a file, and each parser fails in its own way.
    """
    try:
        yield
    except TensondeError:
        raise
    except Exception as problem:
        shown = f"{shortened(path)} cannot be read{f' as {what}' if what else ''}"
        raise RecordingError(f"{shown}: {reason(problem)}.") from None


def reason(problem: BaseException) -> str:
    """What an exception says, in one line of bearable length."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    if isinstance(problem, MemoryError):
        return "there is not enough memory"
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(problem).split()) or type(problem).__name__
    if isinstance(problem, LookupError):
        text = f"{text} is missing" if isinstance(problem, KeyError) else "an index is out of range"
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…").rstrip(".")


def shortened(path: Path | str) -> str:
    """A path as it can be shown: not longer than a few lines."""
    text = str(path)
    return text if len(text) <= _LONGEST else f"{text[:100]}…{text[-100:]}"


@contextmanager
def understanding(what: str) -> Iterator[None]:
    """Where sense is made of documents that have no fixed shape (facts.json, the arguments in a trace): raises RecordingError where `what` holds
    something else than a training writes. TENSONDE_STRICT=1 lets the exception through, for tests: on a whole recording it is a defect of ours.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise
        raise RecordingError(misunderstood(what, problem)) from problem


def misunderstood(what: str, problem: BaseException) -> str:
    return (
        f"{what} cannot be understood ({type(problem).__name__}: {reason(problem)}): a file there, such as facts.json, is damaged or was changed; "
        "if it was not, please report this."
    )
