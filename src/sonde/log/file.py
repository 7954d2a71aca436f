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
        super().__init__(path, encoding="utf-8", **options)
        there = weakref.ref(self)

        def forked() -> None:
            """The file stays the parent's; the child opens one when it has something to say."""
            mine = there()
            if mine is not None:
                mine.stream = None

        os.register_at_fork(after_in_child=forked)

    def _open(self) -> Any:
        stream = super()._open()
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            path = Path(self.baseFilename)
            self.baseFilename = str(path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}"))
            stream = super()._open()
        return stream
