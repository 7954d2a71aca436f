"""The table of commands: one file per command, and the help names each."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tensonde.cli import commands
from tensonde.cli.main import COMMANDS, cli

NAMES = [row.name for row in COMMANDS]


def test_one_file_per_command() -> None:
    files = {path.stem for path in Path(commands.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_goes_by_the_name_of_its_file(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name


def test_the_help_shows_every_command_with_an_example() -> None:
    assert cli.help is not None
    shown = [line.split()[1] for line in cli.help.splitlines() if line.startswith("tensonde ")]
    assert shown == NAMES
