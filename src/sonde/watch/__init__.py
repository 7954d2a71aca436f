"""The watch language and the engine: site patterns, conditions, watchpoints, and from digests to hits."""

from sonde.watch.conditions import CONDITIONS
from sonde.watch.conditions import parse as condition
from sonde.watch.engine import Engine
from sonde.watch.expression import Expression
from sonde.watch.parse import entries, load, loads, watchpoint
from sonde.watch.pattern import Pattern
from sonde.watch.recommended import recommended
from sonde.watch.suggest import nearest

__all__ = [
    "CONDITIONS",
    "Engine",
    "Expression",
    "Pattern",
    "condition",
    "entries",
    "load",
    "loads",
    "nearest",
    "recommended",
    "watchpoint",
]
