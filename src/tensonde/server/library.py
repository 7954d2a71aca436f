"""Which recordings the hub shows: those given, those in given folders, and those that an agent announced. No others."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensonde.errors import RecordingError
from tensonde.server.recorded import RecordedRank
from tensonde.store.format import FINDINGS, MANIFEST, SESSION
from tensonde.store.reader import Recording
from tensonde.store.remote import Following, url_of
from tensonde.store.resolve import RUNS, resolve, runs_in

LOOK_SECONDS = 1.0


class RecordedRun:
    """A recording that stays open. Any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ranks: dict[str, RecordedRank] = {}
        self._manifest: tuple[Any, dict[str, Any]] = (None, {})

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            stamp = (self.path / MANIFEST).stat().st_mtime_ns
        except OSError:
            return self._manifest[1]
        if self._manifest[0] != stamp:
            try:
                self._manifest = (stamp, Recording.open(self.path).manifest)
            except RecordingError:
                self._manifest = (stamp, {})
        return self._manifest[1]

    def stamp(self) -> Any:
        """Changes when a finished run does: its manifest, and each rank's session and findings."""
        found = []
        for path in (
            self.path / MANIFEST,
            *(rank.folder / name for rank in self.ranks.values() for name in (SESSION, FINDINGS)),
        ):
            try:
                found.append(path.stat().st_mtime_ns)
            except OSError:
                found.append(0)
        return found

    def known(self, name: str) -> RecordedRank | None:
        """One rank, without a look at the folder where it is known."""
        return self._ranks.get(name) or self.ranks.get(name)

    @property
    def ranks(self) -> dict[str, RecordedRank]:
        try:
            names = sorted(
                entry.name for entry in os.scandir(self.path) if entry.name.startswith("rank") and entry.is_dir()
            )
        except OSError:
            names = []
        for name in names:
            if name not in self._ranks:
                self._ranks[name] = RecordedRank(self.path / name)
        found = [self._ranks[name] for name in names]
        return {rank.name: rank for rank in sorted(found, key=lambda rank: (rank.rank, rank.name))}


class Library:
    def __init__(self, given: Iterable[str | Path] = ()) -> None:
        """`given`: recordings and folders of recordings. Raises RecordingError for what is neither."""
        self._lock = threading.RLock()
        self._folders: list[Path] = []
        self._runs: dict[str, RecordedRun] = {}
        self._ids: dict[Path, str] = {}
        self._looked = float("-inf")
        for one in given:
            self._give(Path(one))

    def _give(self, path: Path) -> None:
        if (url := url_of(path)) is not None:
            path = Following(url).folder
        if not path.exists() or (path / MANIFEST).is_file():
            self._add(resolve(path)[0])
            return
        if not path.is_dir():
            raise RecordingError(f"{path} is not a folder; give a recording, or a folder with recordings in it.")
        self._folders.append(path.resolve())

    def announce(self, path: Path) -> str | None:
        """An agent on this machine says that its recording is there. Its id, or None where it cannot be read."""
        try:
            return self._add(path) if (path / MANIFEST).is_file() else None
        except OSError:
            return None

    def runs(self) -> dict[str, RecordedRun]:
        """By id, oldest first within a folder."""
        with self._lock:
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self._looked = time.monotonic()
                for folder in self._folders:
                    for parent in (folder, folder / "runs", folder / RUNS):
                        try:
                            found = runs_in(parent)
                        except OSError:
                            continue
                        for path in found:
                            self._add(path)
                for id, run in list(self._runs.items()):
                    if not (run.path / MANIFEST).exists():
                        del self._runs[id], self._ids[run.path]
            return dict(self._runs)

    def run(self, id: str) -> RecordedRun | None:
        with self._lock:
            found = self._runs.get(id)
        return found if found is not None else self.runs().get(id)

    def _add(self, path: Path) -> str:
        path = path.resolve()
        with self._lock:
            known = self._ids.get(path)
            if known is not None:
                return known
            run = RecordedRun(path)
            plain = re.sub(r"[^\w.-]", "-", str(run.manifest.get("id") or path.name))[:100] or "run"
            id, copy = plain, 2
            while id in self._runs:  # a copy of a recording has its id, too
                id, copy = f"{plain}-{copy}", copy + 1
            self._runs[id], self._ids[path] = run, id
            return id
