"""The writing side of a dump: one rank's folder, filled while the training runs.

`put` copies a tensor's bytes into the pool and returns; one thread writes behind. Without a pool (synchronous), `put`
returns when the bytes are written. Either way the journal names a tensor before its bytes are touched.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.store.dump.journal import Journal, close_journal
from tensonde.store.dump.layout import FORMAT_VERSION, JOURNAL, MANIFEST, step_file
from tensonde.store.dump.pool import Pool, Slot
from tensonde.store.dump.stepfile import FIRST_ROOM, PAGE, StepFile
from tensonde.store.files import dump_json, replace_file
from tensonde.store.liveness import identity

log = logging.getLogger("tensonde.dump")

POOL_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """One tensor to be kept: where and when it was seen."""

    site: str
    step: int
    phase: str
    call: int
    kind: str
    type: str
    dtype: str
    shape: tuple[int, ...]


class DumpWriter:
    """Writes one rank's folder, which `claim_rank` made.

    Threads: any may call `put`, one at a time; a signal handler may call `close` in the middle of a `put`, whose tensor
    then counts as lost and everything before it as kept. In a forked child every method does nothing.
    Failure: never raises OSError out of `put`. When the disk is full or the folder gone, the dump ends: what was whole is
    kept, `failure` says why, and the rest is counted in `lost`.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, Any], *, asynchronous: bool = True, pool_bytes: int = POOL_BYTES
    ) -> None:
        """Raises OSError."""
        self.folder = folder
        self.failure: OSError | None = None
        self.entries = self.bytes = self.lost = 0
        self._pid = os.getpid()
        self._facts = {"format": FORMAT_VERSION, "process": identity(), **facts, "asynchronous": asynchronous}
        self._journal = Journal(folder / JOURNAL)
        self._lock = threading.RLock()
        self._file: StepFile | None = None
        self._step = -1
        self._part = 0
        self._keys: set[str] = set()
        self._room = FIRST_ROOM
        self._slot: Slot | None = None
        self._closed = False
        self._write_facts()
        self._pool = Pool(pool_bytes) if asynchronous else None
        self._work: queue.SimpleQueue[tuple[StepFile, Slot | None, bool] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if asynchronous:
            self._thread = threading.Thread(target=self._write_behind, name="tensonde-dump", daemon=True)
            self._thread.start()

    # -- accepting -------------------------------------------------------------------------------

    def put(self, seen: Seen, content: np.ndarray[Any, Any]) -> bool:
        """Keep a tensor: its little-endian bytes in C order, flat. They may change as soon as this returns.

        False when it was not kept, because the dump has ended."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            if self._closed or self.failure is not None:
                self.lost += not self._closed
                return False
            try:
                self._accept(seen, content)
            except OSError as problem:
                self._fail(problem)
                self.lost += 1
                return False
            return True

    def _accept(self, seen: Seen, content: np.ndarray[Any, Any]) -> None:
        if seen.step != self._step:
            self._end_file()
            self._step, self._part = seen.step, 0
            self._keys.clear()
        call, key = self._key(seen)
        if self._file is not None and not self._file.fits(
            self._file.described(key, seen.dtype, seen.shape, len(content))
        ):
            self._end_file()
            self._part += 1
        if self._file is None:
            facts = {"format": f"tensonde-dump-{FORMAT_VERSION}", "step": str(seen.step)}
            room = max(self._room, PAGE * (2 + (6 * len(key) + 21 * len(seen.shape)) // PAGE))
            self._file = StepFile(self.folder, step_file(seen.step, self._part), facts, room)
            self._begin(self._file)
        file = self._file
        description = file.described(key, seen.dtype, seen.shape, len(content))
        self._journal.append(
            {
                "ord": self.entries, "step": seen.step, "phase": seen.phase, "call": call, "site": seen.site,
                "kind": seen.kind, "type": seen.type, "dtype": seen.dtype, "shape": seen.shape,
                "file": file.name, "key": key, "offset": file.size, "nbytes": len(content),
            }
        )  # fmt: skip
        if self._pool is None:
            file.write(content.data)
        else:
            self._fill(self._pool, file, content)
        self._keys.add(key)
        file.add(description, len(content))
        self.entries += 1
        self.bytes += len(content)

    def _begin(self, file: StepFile) -> None:
        """Room for the header comes first."""
        if self._pool is None:
            file.open(direct=False)
            file.write(memoryview(bytes(file.room)))
        else:
            self._fill(self._pool, file, np.zeros(file.room, np.uint8))

    def _key(self, seen: Seen) -> tuple[int, str]:
        """A site that is seen again in the same call gets the next number that is free."""
        call = seen.call
        key = seen.site if call == 0 else f"{seen.site}@{call}"
        while key in self._keys:
            call += 1
            key = f"{seen.site}@{call}"
        return call, key

    def _fill(self, pool: Pool, file: StepFile, content: np.ndarray[Any, Any]) -> None:
        start = 0
        while start < len(content):
            if self._slot is None:
                self._slot = pool.take()
                if self.failure is not None:
                    raise self.failure
            slot = self._slot
            size = min(slot.free, len(content) - start)
            np.copyto(slot.memory[slot.filled : slot.filled + size], content[start : start + size])
            slot.filled += size
            start += size
            if not slot.free:
                self._slot = None
                self._work.put((file, slot, False))

    def move(self, first: int) -> None:
        """The step had ended before the tensor number `first`: what came since belongs to the next."""
        if os.getpid() == self._pid and first < self.entries and not self._closed:
            try:
                self._journal.append({"moved": first, "last": self.entries - 1, "to": self._step + 1})
            except OSError as problem:
                self._fail(problem)

    def end_step(self) -> None:
        """No more tensors of this step will come: its file can be finished."""
        if os.getpid() == self._pid and not self._closed:
            with self._lock:
                self._end_file()

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        self._room = file.next_room
        slot, self._slot = self._slot, None
        if self._thread is not None:
            self._work.put((file, slot, True))
        elif self.failure is None:
            try:
                self._finish(file)
            except OSError as problem:
                self._fail(problem)

    # -- writing ---------------------------------------------------------------------------------

    def _write_behind(self) -> None:
        """The writing thread. After a failure it goes on taking slots, so that no caller waits for ever."""
        assert self._pool is not None
        begun: StepFile | None = None
        while (job := self._work.get()) is not None:
            file, slot, last = job
            try:
                if self.failure is None:
                    if file is not begun:
                        begun = file
                        file.open(direct=True)
                    if slot is not None and slot.filled:
                        size = -(-slot.filled // PAGE) * PAGE
                        slot.memory[slot.filled : size] = 0
                        file.write(slot.memory[:size].data)
                    if last:
                        self._finish(file)
            except OSError as problem:
                self._fail(problem, file)
            except Exception as problem:  # not ours to break the training with
                self._fail(OSError(f"{type(problem).__name__}: {problem}"), file)
            finally:
                if slot is not None:
                    self._pool.give(slot)

    def _finish(self, file: StepFile) -> None:
        file.finish()

    def _fail(self, problem: OSError, file: StepFile | None = None) -> None:
        """The dump ends here. What is whole stays, with its header."""
        if self.failure is not None:
            return
        self.failure = problem
        file = file or self._file
        good = 0
        if file is not None:
            try:
                good = file.finish()
            except OSError:
                pass
            try:
                self._journal.append({"lost": file.name, "good": good})
            except OSError:
                pass
        log.warning(
            "the dump ends at step %d (%s); the training goes on, and what was whole is kept in %s",
            self._step, problem.strerror or problem, self.folder,
        )  # fmt: skip

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything that was accepted is on disk when this returns. Never raises; a second call does nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._end_file()
            if self._thread is not None:
                self._work.put(None)
                self._thread.join()
            self._journal.close()
            path = self.folder / JOURNAL
            try:
                if path.exists():
                    accepted = self.entries
                    self.entries, self.bytes = close_journal(path)
                    self.lost += max(0, accepted - self.entries)
            except OSError as problem:
                log.warning(
                    "the index of %s could not be written (%s); its journal serves as well", self.folder, problem
                )
            self._facts.update(self.outcome(), closed=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            try:
                self._write_facts()
            except OSError:
                pass

    def outcome(self) -> dict[str, Any]:
        """What became of it, for people and for the recording."""
        pool = self._pool
        return {
            "entries": self.entries,
            "bytes": self.bytes,
            "lost": self.lost,
            "failure": str(self.failure) if self.failure is not None else None,
            "waits": pool.waits if pool else 0,
            "waited_seconds": round(pool.waited_ns * 1e-9, 3) if pool else 0.0,
        }

    def _write_facts(self) -> None:
        replace_file(self.folder / MANIFEST, dump_json(self._facts, indent=2) + b"\n")
