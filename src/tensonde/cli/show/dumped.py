"""A line about a dump, after the run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tensonde.cli.show.echo import echo


def show_dump(settings: dict[str, Any]) -> None:
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
