"""What a command works with: the stopped training, the terminal, and what is remembered between stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensonde.debugger.table import Table
from tensonde.debugger.terminal import Terminal
from tensonde.model.stop import Stop
from tensonde.session.gate import Gate
from tensonde.session.inspector import Inspector
from tensonde.session.session import Session

if TYPE_CHECKING:
    from tensonde.debugger.python import PythonDebugger


@dataclass(slots=True)
class Notes:
    """What outlives a stop. `listed` is the file and the last line that `list` showed; `printed` the tensor and the row that `print` goes on with; `promised` is to be done at the next stop."""

    listed: tuple[str, int] | None = None
    printed: tuple[str, int] | None = None
    promised: Callable[[Context], None] | None = None

    def keep_promise(self, context: Context) -> None:
        promised, self.promised = self.promised, None
        if promised is not None:
            promised(context)


@dataclass(slots=True)
class Context:
    """Belongs to the training thread, for one stop. `leave` takes the debugger off the training."""

    inspector: Inspector
    stop: Stop
    terminal: Terminal
    table: Table
    python: PythonDebugger
    leave: Callable[[], None]
    notes: Notes = field(default_factory=Notes)

    @property
    def session(self) -> Session:
        return self.inspector.session

    @property
    def gate(self) -> Gate:
        return self.inspector.session.gate
