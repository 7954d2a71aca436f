"""From what a user types to a run's folder."""

from __future__ import annotations

import json
from pathlib import Path

from tensonde.errors import RecordingError
from tensonde.store.damage import read_file, reason, shortened
from tensonde.store.format import MANIFEST, SESSION
from tensonde.store.remote import fetch, url_of

RUNS = Path(".tensonde") / "runs"
_FORMER = Path(".sonde") / "runs"
"""Where runs were kept before the project was renamed."""


def resolve(path: str | Path) -> tuple[Path, str | None]:
    """The run's folder, and the rank's folder's name if a rank was given.

    Taken: a run's folder, a rank's folder in one, a folder of runs (`runs`, `.tensonde`, or one that holds a
    `.tensonde`) for its newest run, the bare name of a run in `.tensonde/runs`, and a URL of a run or of a folder of runs,
    which is copied first. Raises RecordingError.
    """
    if (url := url_of(path)) is not None:
        return fetch(url), None
    given = Path(path)
    try:
        folder = given
        if not given.exists():
            folder = next((home / given for home in (RUNS, _FORMER) if (home / given / MANIFEST).exists()), given)
        if (folder / MANIFEST).is_file():
            return folder, None
        if (folder / SESSION).is_file() and (folder.absolute().parent / MANIFEST).is_file():
            return folder.absolute().parent, folder.absolute().name
        homes = (folder, folder / "runs", folder / RUNS, folder / _FORMER)
        runs = sorted((run for home in homes for run in runs_in(home)), key=_age)
        if runs:  # wherever it was recorded: beside the script with --record, or in .tensonde
            return runs[-1], None
        if not folder.exists():
            raise RecordingError(f"{given} does not exist; give a recording's folder, such as {RUNS}/NAME")
    except (OSError, ValueError) as error:  # a name that is too long, or no name
        raise RecordingError(f"{shortened(given)} cannot be opened as a recording: {reason(error)}") from error
    raise RecordingError(
        f"{given} is not a recording: there is no {MANIFEST} in it; "
        f"give a folder that `tensonde run` made, such as {RUNS}/NAME"
    )


def runs_in(parent: Path) -> list[Path]:
    """The runs directly in a folder, oldest first; [] if it is none. Raises OSError where it may not look."""
    if not parent.is_dir():
        return []
    return sorted((path.parent for path in parent.glob(f"*/{MANIFEST}")), key=_age)


def _age(run: Path) -> tuple[str, float]:
    """By the time the manifest states, so that a copy does not look newer; by the file's where that is
    unreadable."""
    path = run / MANIFEST
    try:
        started = str(json.loads(read_file(path))["started"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        started = ""
    return started, path.stat().st_mtime
