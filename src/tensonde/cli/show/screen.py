"""Where the commands print: tables on standard output, plain when it is no terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tensonde.model.printable import printable
from tensonde.store.files import dump_json

PIPED_WIDTH = 240
"""Columns when the output is no terminal: wide enough that a name is not cut, for grep finds no half of
it."""


class Screen(Console):
    """A console that spells out control characters, whatever is printed on it: its own colours are no text."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def error_console(**options: Any) -> Screen:
    """On standard error, for what is said beside the program's own output."""
    return Screen(stderr=True, highlight=False, soft_wrap=True, **options)


def console() -> Screen:
    """A console on the standard output of this moment. rich itself heeds NO_COLOR, FORCE_COLOR and
    COLUMNS."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without these characters shows ?, and nothing fails
    return Screen(highlight=False, width=None if is_terminal() else PIPED_WIDTH)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def plot_width(out: Console) -> int:
    """Columns for a plot: what the terminal has beside its labels, within reason."""
    return max(20, min(72, out.width - 14))


def print_json(value: Any) -> None:
    """Standard JSON: a number that is not finite is a string, "NaN" or "Infinity"."""
    click.echo(dump_json(value, indent=2).decode())


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()) -> Table:
    """A plain table; the columns named in `right` hold numbers. Cells are text, never markup."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(cell) for cell in row))
    return made


def _cell(cell: str | Text) -> str | Text:
    """Spelt out before columns are measured."""
    if isinstance(cell, str):
        return escape(printable(cell))
    return cell if printable(cell.plain) == cell.plain else Text(printable(cell.plain), style=cell.style)
