"""The table of all commands."""

from __future__ import annotations

from tensonde.debugger import (
    breakpoints,
    compiled,
    control,
    information,
    python,
    recorded,
    stack,
    statistics,
    values,
    variables,
    watchpoints,
)
from tensonde.debugger.table import Table

TABLE = Table(
    {
        "Running": control.COMMANDS,
        "Breakpoints": breakpoints.COMMANDS,
        "Watchpoints": watchpoints.COMMANDS,
        "Values": values.COMMANDS + statistics.COMMANDS + compiled.COMMANDS,
        "Where and what": stack.COMMANDS
        + information.COMMANDS
        + recorded.COMMANDS
        + variables.COMMANDS
        + python.COMMANDS,
    }
)
