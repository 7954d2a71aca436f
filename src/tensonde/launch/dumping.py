"""The dump that a run is asked for: on the command line, in a file, or by the environment, in this order."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.session.dump.settings import DumpSettings, from_command_line, from_file

OURS, MINDSPORES = "TENSONDE_DUMP_CONFIG", "MINDSPORE_DUMP_CONFIG"
INNER = "dump"
"""Where a dump goes that was asked for without a place: into the recording."""


def settings_of(sites: tuple[str, ...], steps: str | None, config: Path | None, run: Path) -> DumpSettings | None:
    if sites and config is not None:
        raise UsageError("--dump and --dump-config were both given; give one of them.")
    if steps is not None and not sites:
        raise UsageError("--dump-steps says when, and nothing says what; add e.g. --dump '**:out'.")
    if sites:
        return from_command_line(sites, steps, run / INNER)
    if config is not None:
        return from_file(config)
    if named := os.environ.get(OURS):
        return from_file(Path(named), said_by=OURS)
    return None


def _meant_for_mindspore() -> DumpSettings | None:
    """What MindSpore itself is told to dump. It may have written a dump there before, and it may know settings that Tensonde
    does not: this is said, and the training goes on."""
    named = os.environ.get(MINDSPORES)
    try:
        settings = from_file(Path(named), said_by=MINDSPORES) if named else None
        if settings is not None:
            from tensonde.store.dump.layout import check_free

            check_free(Path(settings.folder))
    except UsageError as problem:
        print(f"tensonde: nothing is dumped: {problem}", file=sys.stderr, flush=True)
        return None
    return settings


def check_dump(sites: tuple[str, ...], steps: str | None, config: Path | None) -> None:
    """Of what Tensonde was asked for. Better to hear it before a recording is made."""
    settings = settings_of(sites, steps, config, Path())
    if settings is not None and not sites:
        from tensonde.store.dump.layout import check_free

        check_free(Path(settings.folder))


def dump_of(sites: tuple[str, ...], steps: str | None, config: Path | None, run: Path) -> dict[str, Any] | None:
    """The settings for the options of a run, and the folder made. Raises UsageError."""
    asked = sites or config is not None or os.environ.get(OURS)
    settings = settings_of(sites, steps, config, run) if asked else _meant_for_mindspore()
    if settings is None:
        return None
    from tensonde.store.dump.layout import create_dump

    create_dump(Path(settings.folder), {"net_name": settings.net_name, "settings": settings.to_json()})
    return settings.to_json()
