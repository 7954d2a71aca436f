"""Numbers that a script reports on the way to the process that started it: lines of JSON in the file that TENSONDE_REPORTS names.

Beside the recording, because a script that is tuned need not use a framework that Tensonde watches.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ENVIRONMENT = "TENSONDE_REPORTS"
RETURNED = "return"
"""The name of what a tuned function returns."""


listeners: list[Callable[[Reported], None]] = []
"""Called in this process, in turn."""


class Reported(NamedTuple):
    name: str
    value: float
    step: int | None


def note(name: str, value: float, step: int | None) -> None:
    """Writes one whole line at once; does nothing if no file is named."""
    for listener in listeners:
        listener(Reported(name, value, step))
    path = os.environ.get(ENVIRONMENT)
    if path:
        line = json.dumps({"name": name, "value": value, "step": step}) + "\n"
        with open(path, "ab", buffering=0) as file:
            file.write(line.encode())


def read(path: Path) -> list[Reported]:
    """Whole lines only: the last may be on its way."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        entry = json.loads(line)
        found.append(Reported(entry["name"], entry["value"], entry["step"]))
    return found
