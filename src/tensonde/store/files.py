"""How bytes reach the disk: whole, or not at all, or as a tail that a reader can recognise and skip.

A kill -9 loses nothing that was written here, because the kernel holds it; a power cut may lose the last
seconds.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensonde.store.format import COMPRESSED, TEMPORARY

LARGE = 1 << 18
"""Bytes of a document from which on it is compressed."""


def plain(value: Any) -> Any:
    """`value` in standard JSON: NaN and infinities become the strings that `float()` reads back, dataclasses what they
    hold, other objects their text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "item"):  # a numpy scalar
        return plain(value.item())
    return str(value)


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """Standard JSON in UTF-8; a lone surrogate (an undecodable file name) is escaped, so this never fails on
    text."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=indent, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def dump_lines(values: Iterable[dict[str, Any]]) -> bytes:
    """A line of JSON each, as `dump_json` writes it, for many values that hold no numbers but whole ones."""
    import msgspec

    values = list(values)
    try:
        return b"".join(msgspec.json.encode(value) + b"\n" for value in values)
    except (TypeError, ValueError, OverflowError):  # a text with a lone surrogate, say
        return b"".join(dump_json(value) + b"\n" for value in values)


def replace_file(path: Path, *chunks: bytes | memoryview) -> None:
    """Write `path` so that others see the old content or all of the new, never a part. Raises OSError."""
    draft = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with open(draft, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


class Appender:
    """A new append-only file. `append` is whole or undone. One thread at a time; raises OSError as it comes.

    When the undoing fails too, `torn` is True: the file ends in a part of a message.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.torn = path, False
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._linked = os.fstat(self._fd).st_nlink > 0  # some network file systems count no links at all
        self.size = 0

    def append(self, message: bytes | memoryview) -> None:
        before = os.fstat(self._fd)
        if self._linked and before.st_nlink == 0:  # writing to a deleted file succeeds, and keeps nothing
            raise FileNotFoundError(errno.ENOENT, "the recording was deleted while it was written", str(self.path))
        view = memoryview(message)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except BaseException:
            try:
                os.ftruncate(self._fd, before.st_size)
            except OSError:
                self.torn = True
            raise
        self.size = before.st_size + len(message)

    def close(self) -> None:
        """Release the file. Never raises; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass


class JsonLines:
    """A new append-only file of one JSON value a line, made at the first line. One thread at a time; raises
    OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Appender | None = None

    def append(self, value: Any) -> None:
        self.append_lines(dump_json(value) + b"\n")

    def append_lines(self, lines: bytes) -> None:
        """Whole lines of JSON, all of them or none."""
        if self._file is None:
            self._file = Appender(self.path)
        file = self._file
        # A torn line is ended first, so that it spoils only itself.
        mend = b"\n" if file.torn else b""
        file.append(mend + lines)
        file.torn = False

    def close(self) -> None:
        """Release the file. Never raises; a second call does nothing."""
        if self._file is not None:
            self._file.close()


def write_numbered(parent: Path, number: int, content: bytes) -> Path:
    """One of several JSON documents in a folder, which is made with the first. A large one is compressed. Raises OSError."""
    parent.mkdir(exist_ok=True)
    path = parent / f"{number:06d}.json"
    if len(content) > LARGE:
        import gzip

        path = path.with_name(f"{path.name}{COMPRESSED}")
        content = gzip.compress(content, 1, mtime=0)
    replace_file(path, content)
    return path


def numbered(parent: Path) -> list[Path]:
    """The documents that `write_numbered` has written there, in order."""
    return sorted([*parent.glob("*.json"), *parent.glob(f"*.json{COMPRESSED}")])
