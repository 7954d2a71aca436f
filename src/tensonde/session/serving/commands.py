"""The debugger's commands, for somebody elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tensonde.model.stop import Resume, Stop

Lines = list[list[dict[str, Any]]]
Ask = Callable[[Lines, str], str]


class Commands(Protocol):
    """In the training thread, during a stop."""

    def run(self, line: str, stop: Stop, ask: Ask) -> tuple[Lines, Resume | None]:
        """What it says, and how the training goes on if it does. `ask` shows what was said so far, and a question."""

    def complete(self, text: str) -> tuple[int, list[str]]: ...
