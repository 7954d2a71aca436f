"""The dump that a run is asked for: on the command line, in a file, or by the environment, in this order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tensonde.cli.echo import echo
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
    from tensonde.store.dump.layout import check_free

    settings = settings_of(sites, steps, config, Path())
    if settings is not None and not sites:
        check_free(Path(settings.folder))


def dump_of(sites: tuple[str, ...], steps: str | None, config: Path | None, run: Path) -> dict[str, Any] | None:
    """The settings for the options of a run, and the folder made. Raises UsageError."""
    from tensonde.store.dump.layout import create_dump

    settings = settings_of(sites, steps, config, run)
    if settings is None:
        return None
    create_dump(Path(settings.folder), {"net_name": settings.net_name, "settings": settings.to_json()})
    return settings.to_json()


def told(settings: dict[str, Any]) -> None:
    """A line about what was dumped."""
    from tensonde.store.dump.layout import MANIFEST, RANK

    folder = Path(settings["folder"])
    entries = size = lost = cut = 0
    waited = 0.0
    for path in sorted(folder.glob(f"{RANK}*/{MANIFEST}")):
        try:
            facts = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        cut += "closed" not in facts
        entries += facts.get("entries", 0)
        size += facts.get("bytes", 0)
        lost += facts.get("lost", 0)
        waited = max(waited, facts.get("waited_seconds", 0.0))
    shown = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
    line = f"tensonde: dumped {entries} tensors, {size / 1e6:,.1f} MB, to {shown}"
    if cut:
        line = f"tensonde: the dump in {shown} was cut short; what was whole can be read (`tensonde convert` names the rest)"
    elif waited >= 0.1:
        line += f"; the training waited {waited:.1f} s for the disk"
    if lost:
        line += f"; {lost} tensors were lost"
    echo(line, err=True)
