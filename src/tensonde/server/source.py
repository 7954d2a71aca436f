"""Source lines, only of files that belong to the run: named in the recording, or Python files in the script's own folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensonde.server.place import Place
from tensonde.server.refusals import NotFound

LARGEST = 4 << 20
MOST_LINES = 2000


def excerpt(place: Place, file: str, line: int, around: int) -> dict[str, Any]:
    if place.recorded is None:  # a path that an agent names on another machine says nothing about this one
        raise NotFound("the source of this training is on another machine.")
    refusal = NotFound(f"{file!r} is no source file of this run.")
    folder = working_folder(place)
    try:
        path = (folder / file).resolve()
        if not _belongs(place, path, folder) or not path.is_file() or path.stat().st_size > LARGEST:
            raise refusal
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        raise refusal from None
    around = max(0, min(around, MOST_LINES))
    first = max(1, line - around) if line else 1
    last = min(len(lines), line + around) if line else min(len(lines), MOST_LINES)
    return {"file": file, "first": first, "lines": lines[first - 1 : last], "line": line}


def working_folder(place: Place) -> Path:
    """Where the training ran: paths in a recording may be relative to that."""
    given = place.session.get("cwd")
    if isinstance(given, str) and given:
        return Path(given)
    if place.folder is not None:
        run = place.folder.parent.resolve()
        if run.parent.name == "runs" and run.parent.parent.name == ".tensonde":
            return run.parent.parent.parent
    return Path.cwd()


def _belongs(place: Place, path: Path, folder: Path) -> bool:
    script = place.session.get("script")
    if script and path.suffix == ".py" and path.is_relative_to((folder / str(script)).resolve().parent):
        return True
    return any((folder / name).resolve() == path for name in {*_named(place)})


def _named(place: Place) -> Iterator[str]:
    for site in place.sites.values():
        if site.source is not None:
            yield site.source.file
    for finding in place.findings:
        if finding.source is not None:
            yield finding.source.file
    if place.recorded is not None:
        for path in place.recorded.trace_files():
            trace = place.recorded.trace(path)
            yield from (op.source.file for op in trace.ops if op.source is not None) if trace is not None else ()
