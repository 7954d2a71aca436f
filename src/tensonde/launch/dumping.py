"""The dump that a run is asked for: on the command line, in a file, or by the environment, in this order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.session.dump.settings import DumpSettings, from_command_line, from_file

VARIABLES = ("TENSONDE_DUMP_CONFIG", "MINDSPORE_DUMP_CONFIG")
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
    for variable in VARIABLES:
        named = os.environ.get(variable)
        if named:
            return from_file(Path(named), said_by=variable)
    return None


def check_dump(sites: tuple[str, ...], steps: str | None, config: Path | None) -> None:
    """Better to hear it before a recording is made."""
    settings = settings_of(sites, steps, config, Path())
    if settings is not None and not sites:
        from tensonde.store.dump.layout import check_free

        check_free(Path(settings.folder))


def dump_of(sites: tuple[str, ...], steps: str | None, config: Path | None, run: Path) -> dict[str, Any] | None:
    """The settings for the options of a run, and the folder made. Raises UsageError."""
    settings = settings_of(sites, steps, config, run)
    if settings is None:
        return None
    from tensonde.store.dump.layout import create_dump

    create_dump(Path(settings.folder), {"net_name": settings.net_name, "settings": settings.to_json()})
    return settings.to_json()
