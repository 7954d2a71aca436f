"""Lines that a command prints for people. Nothing heavy is imported here."""

from __future__ import annotations

import click

from tensonde.model.printable import printable


def echo(text: str = "", *, err: bool = False) -> None:
    """One line, with control characters spelt out (what programs read goes out by `print_json` or as it is)."""
    click.echo(printable(text), err=err)
