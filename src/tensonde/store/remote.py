"""Recordings on an object store or another file system that fsspec knows: `s3://bucket/run`, `gs://`, `sftp://`, `memory://`.

A recording is read from a copy in the cache of this machine, which is brought up to date file by file; it is written to a local folder, and
uploaded from there beside the training. So a store that is slow or away never holds anything up. fsspec is imported when a URL is given.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tensonde.errors import RecordingError, TensondeError, UsageError
from tensonde.store.format import MANIFEST, TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("tensonde")
EVERY = 30.0
"""Seconds between two looks at what is to be uploaded; more after failures, up to `LONGEST`."""
LONGEST = 300.0
AT_THE_END = 60.0
"""Seconds in which the rest is uploaded when the training has ended."""
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between tries at the end; then the last of them again."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/+")
_INDEX = "fetched.json"
_LOCAL = ("file", "local")


def url_of(path: str | Path) -> str | None:
    """The URL that was given; None for a path of this machine. A Path has lost one of its slashes."""
    text = str(path)
    found = _SCHEME.match(text)
    if found is None:
        return None
    return f"{found[1]}://{'/' if found[1] in _LOCAL else ''}{text[found.end() :].rstrip('/')}"


def open_store(url: str) -> tuple[Any, str]:
    """The file system and the path in it. Raises UsageError where it is not known, or a package is missing."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{url} is a URL, and fsspec is not installed; `pip install 'tensonde[remote]'`, and for S3 s3fs."
        ) from None
    try:
        files, path = url_to_fs(url)
    except (ImportError, ValueError) as problem:
        raise UsageError(f"{url} cannot be opened: {problem}.") from None
    return files, str(path).rstrip("/")


def fetch(url: str) -> Path:
    """The folder of a copy, up to date: of the run that was given, or of the newest run in it. Raises RecordingError."""
    with _explained(url):
        files, path = open_store(url)
        if files.isfile(f"{path}/{MANIFEST}"):
            return _copy(files, path, cache_of(url) / PurePosixPath(path).name)
        runs = _runs(files, path)
        if not runs:
            raise RecordingError(f"{url} is not a recording, and has none: there is no {MANIFEST} in it.")
        return _copy(files, runs[-1], cache_of(url) / PurePosixPath(runs[-1]).name)


def fetch_all(url: str) -> Path:
    """The folder of copies of all runs there, up to date; of the one run, where it is one. Raises RecordingError."""
    with _explained(url):
        files, path = open_store(url)
        if files.isfile(f"{path}/{MANIFEST}"):
            return fetch(url)
        home = cache_of(url)
        home.mkdir(parents=True, exist_ok=True)
        for run in _runs(files, path):
            _copy(files, run, home / PurePosixPath(run).name)
        return home


class Following:
    """A thread that keeps the copies of a URL up to date while somebody looks at them."""

    def __init__(self, url: str, every: float = 5.0) -> None:
        self.folder = fetch_all(url)
        self._url, self._every = url, every
        threading.Thread(target=self._follow, name="follow the store", daemon=True).start()

    def _follow(self) -> None:
        while True:
            time.sleep(self._every)
            try:
                fetch_all(self._url)
            except TensondeError as problem:
                log.debug("%s", problem)


def cache_of(url: str) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tensonde" / "remote" / hashlib.sha256(url.encode()).hexdigest()[:16]


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except TensondeError:
        raise
    except Exception as problem:  # every store has errors of its own
        raise RecordingError(f"{url} cannot be read: {_said(problem)}") from problem


def _said(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {str(problem) or 'no more is known'}"[:300]


def _runs(files: Any, path: str) -> list[str]:
    """Runs directly in a folder, oldest first."""
    found = []
    for entry in files.ls(path, detail=True) if files.exists(path) else ():
        folder = str(entry["name"]).rstrip("/")
        if entry.get("type") == "directory" and files.isfile(f"{folder}/{MANIFEST}"):
            try:
                started = str(json.loads(files.cat_file(f"{folder}/{MANIFEST}")).get("started", ""))
            except (ValueError, AttributeError):
                started = ""
            found.append((started, folder))
    return [folder for _, folder in sorted(found)]


def _copy(files: Any, path: str, folder: Path) -> Path:
    """Files that have changed are read anew, and those that are no longer there are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder.parent / f"{folder.name}.{_INDEX}"
    try:
        known = json.loads(index.read_bytes())
    except (OSError, ValueError):
        known = {}
    files.invalidate_cache()
    there: dict[str, str] = {}
    for name, entry in files.find(path, detail=True).items():
        relative = PurePosixPath(str(name)).relative_to(PurePosixPath(path))
        if ".." in relative.parts or relative.name.endswith(TEMPORARY):
            continue
        stamp = there[str(relative)] = _stamp(entry)
        own = folder / relative
        if known.get(str(relative)) != stamp or not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            draft = own.with_name(own.name + TEMPORARY)
            files.get_file(name, str(draft))
            draft.replace(own)
    for name in set(known) - set(there):
        (folder / name).unlink(missing_ok=True)
    index.write_text(json.dumps(there))
    return folder


def _stamp(entry: dict[str, Any]) -> str:
    """What changes when the file does, as far as the store says."""
    said = [entry.get(name) for name in ("size", "ETag", "etag", "mtime", "LastModified", "last_modified", "created")]
    return " ".join(str(one) for one in said if one is not None)


class Upload:
    """Brings a run's folder to a URL, in a thread of the command: the training knows nothing of it. Failures are tried again, and said once."""

    def __init__(self, folder: Path, url: str, say: Callable[[str], None], every: float = EVERY) -> None:
        """Raises UsageError where the URL is of no use, or has a recording already."""
        self._folder, self.url, self._say, self._every = folder, url, say, every
        self._files, self._path = open_store(url)
        try:
            taken = self._files.exists(f"{self._path}/{MANIFEST}")
        except Exception as problem:
            taken = False
            self._trouble = _said(problem)
        else:
            self._trouble = ""
        if taken:
            raise UsageError(f"{url} already has a recording; choose another name.")
        self._done: dict[str, tuple[int, int]] = {}
        self._over = threading.Event()
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._work, name="upload", daemon=True)
        self._thread.start()

    def end(self, seconds: float = AT_THE_END) -> bool:
        """The training has ended: uploads the rest. Whether all is there; waits no longer than so many seconds."""
        self._over.set()
        self._thread.join(seconds)
        if not self._complete.is_set():
            why = f" ({self._trouble})" if self._trouble else ""
            self._say(f"the recording could not be uploaded to {self.url}{why}; it is in {self._folder}")
        return self._complete.is_set()

    def _work(self) -> None:
        pause = self._every
        while not self._over.wait(pause):
            pause = self._every if self._once() else min(LONGEST, 2 * pause)
        until = time.monotonic() + AT_THE_END
        tries = 0
        while time.monotonic() < until:
            if self._once():
                self._complete.set()
                return
            time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _once(self) -> bool:
        """Whether all that has changed is there now."""
        try:
            here = self._here()
            for name, stamp in here.items():
                if self._done.get(name) != stamp:
                    self._put(name)
                    self._done[name] = stamp
            for name in set(self._done) - set(here):
                self._files.rm_file(f"{self._path}/{name}")
                del self._done[name]
        except Exception as problem:  # every store has errors of its own; the next look tries again
            if not self._trouble:
                self._say(
                    f"uploading to {self.url} fails ({_said(problem)}); it is tried again, and the training goes on"
                )
            self._trouble = _said(problem)
            return False
        self._trouble = ""
        return True

    def _here(self) -> dict[str, tuple[int, int]]:
        """The manifest comes first: with it, what is there is a recording."""
        found = {}
        for path in sorted(self._folder.rglob("*"), key=lambda path: (path.name != MANIFEST, path)):
            try:
                if path.name.endswith(TEMPORARY) or not path.is_file():
                    continue
                stat = path.stat()
            except OSError:
                continue  # it is just being replaced
            found[path.relative_to(self._folder).as_posix()] = (stat.st_size, stat.st_mtime_ns)
        return found

    def _put(self, name: str) -> None:
        target = f"{self._path}/{name}"
        self._files.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
        try:
            self._files.put_file(str(self._folder / name), target)
        except FileNotFoundError:
            if (self._folder / name).exists():
                raise
