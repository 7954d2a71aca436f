"""Full segments become Parquet on a thread of their own, so that the training is not held."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from tensonde.store.format import LIVE, SESSION

log = logging.getLogger("tensonde.store")


def compact_closed(run: Path) -> None:
    """Makes Parquet of what processes of this run have left as streams, those that have closed their recordings. What cannot be converted stays."""
    for stream in sorted(run.glob(f"rank*/*/*{LIVE}")):
        try:
            if not json.loads((stream.parents[1] / SESSION).read_bytes()).get("closed"):
                continue  # killed; or it is on another machine, and still writes
            from tensonde.store.segments import compact  # with pyarrow, where there is something to do

            compact(stream)
        except Exception as problem:
            log.debug("%s stays uncompressed: %s", stream, problem)


class Compactor:
    """`add` from any thread; `finish` once, from one thread.

    A segment that cannot be converted stays as it is, which readers take as well; `problems` then says why.
    """

    def __init__(self, after: Callable[[Path], None] = lambda path: None) -> None:
        """`after` is called with each segment that was converted, before the next."""
        self.problems: list[str] = []
        self._after = after
        self._pending: SimpleQueue[Path | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, path: Path) -> None:
        self._pending.put(path)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="tensonde-compactor", daemon=True)
            # No thread can be started while the interpreter shuts down or memory is short: `finish` does it
            # then.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def finish(self, last: list[Path]) -> None:
        """Convert all that is pending, and `last`, before returning. Never raises OSError.

        The caller helps: the thread yields to everything else, and on a busy machine would keep it waiting.
        """
        for path in last:
            self._convert(path)
        with contextlib.suppress(Empty):
            while (pending := self._pending.get_nowait()) is not None:
                self._convert(pending)
        if self._thread is not None:
            self._pending.put(None)
            self._thread.join()

    def _work(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # on Linux a thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while (path := self._pending.get()) is not None:
            self._convert(path)

    def _convert(self, path: Path) -> None:
        try:
            from tensonde.store.segments import compact  # with pyarrow, which a short training never needs

            compact(path)
        except Exception as error:  # whatever it is, the stream is still there, and the thread must go on
            self.problems.append(f"{path.parent.name}/{path.name} stays uncompressed: {error}")
            return
        try:
            self._after(path)
        except Exception as error:
            self.problems.append(f"{path.parent.name} could not be thinned: {error}")
