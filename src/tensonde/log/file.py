"""A log file that is rotated, and that only one process writes."""

from __future__ import annotations

import fcntl
import os
import weakref
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any


class OwnFile(RotatingFileHandler):
    """A rotated file that one process writes: where another one has it, this one writes beside it, with its number."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._shared = Path(path)
        super().__init__(path, encoding="utf-8", **options)
        there = weakref.ref(self)

        def forked() -> None:
            """The file stays the parent's, though it be between two files just now; the child opens one of its own when it has something to say."""
            mine = there()
            if mine is not None:
                mine.stream = None
                mine._write_beside()

        os.register_at_fork(after_in_child=forked)

    def _write_beside(self) -> None:
        own = self._shared.with_name(f"{self._shared.stem}.{os.getpid()}{self._shared.suffix}")
        self.baseFilename = os.path.abspath(own)

    def _open(self) -> Any:
        stream = super()._open()
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(self.baseFilename)):
                return stream  # and not what its owner rotated away while we opened it
        except OSError:
            pass
        stream.close()
        self._write_beside()
        return super()._open()
