"""The end of a run in which no training was seen. Imports nothing heavy: a script may take less than a second."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from tensonde.adapters.capabilities import NAMES
from tensonde.adapters.registry import installed
from tensonde.cli.show.echo import echo
from tensonde.errors import RecordingError
from tensonde.store.claim import note_exit

EVERY = 0.25
"""Seconds."""


def trained(folder: Path) -> bool:
    """Whether a process has begun to record into this run."""
    return any(folder.glob("rank*"))


def finish_untrained(folder: Path, code: int, *, quiet: bool) -> dict[str, Any]:
    """The report of a run that ended with this exit code."""
    from tensonde.diagnose.report import report
    from tensonde.store.reader import Recording

    with contextlib.suppress(OSError, ValueError):
        note_exit(folder, code)
    try:
        outcome = report(Recording.open(folder), [], exit_code=code)
    except RecordingError as problem:
        echo(f"tensonde: {problem}", err=True)
        return {"exit": {"code": code, "exception": None}, "findings": []}
    try:
        (folder / "report.json").write_text(json.dumps(outcome, indent=2) + "\n")
    except (OSError, ValueError) as problem:
        echo(f"tensonde: the report could not be kept in the recording: {problem}", err=True)
    if not quiet:
        echo(f"tensonde: no training was seen: {_why(folder, code)} Recording: {os.path.relpath(folder)}", err=True)
    return outcome


def _why(folder: Path, code: int) -> str:
    missing = _missing(folder) if code else None
    if missing is not None:
        return f"{NAMES[missing]} is not installed for {sys.executable}; `pip install 'tensonde[{missing}]'` there."
    if code:
        return f"the program ended with code {code} before it trained."
    return "no module was called and no optimizer stepped, or Python was started with -I, -E or -S, which keep Tensonde out."


def _missing(folder: Path) -> str | None:
    """The framework that the script imports and that is not there."""
    try:
        text = Path(json.loads((folder / "run.json").read_text())["script"]).read_text()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    there = installed()
    wanted = re.findall(r"^[ \t]*(?:import|from)[ \t]+(\w+)", text, re.MULTILINE)
    return next((name for name in wanted if name in NAMES and name not in there), None)


def get_ready(folder: Path) -> None:
    """Imports what the end of a training needs while the training runs, in a thread."""

    def wait() -> None:
        while not trained(folder):
            time.sleep(EVERY)
        import_module("tensonde.cli.show.outcome")

    threading.Thread(target=wait, name="get ready", daemon=True).start()
