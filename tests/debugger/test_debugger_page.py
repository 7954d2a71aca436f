"""The command table as documentation: the page is what the table says, and every command can be learnt."""

from __future__ import annotations

from debug_drive import ROOT

from tensonde.debugger.commands import TABLE
from tensonde.debugger.document import PAGE, page


def test_the_page_is_not_stale() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run `python -m tensonde.debugger.document`"


def test_every_command_is_on_the_page_with_its_example() -> None:
    text = page()
    for command in TABLE:
        assert f"### `{command.synopsis}`" in text
        if command.example:
            assert command.example in text
            assert TABLE.find(command.example.split()[0]) is command


def test_a_command_that_takes_arguments_shows_one() -> None:
    assert [c.name for c in TABLE if c.usage and not c.example] == []
