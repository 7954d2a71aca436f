"""What TAB offers."""

from __future__ import annotations

import re

from tensonde.debugger.known import known_addresses, names
from tensonde.debugger.table import Command, Table
from tensonde.errors import UsageError
from tensonde.session.inspector import Inspector
from tensonde.watch.conditions import CONDITIONS
from tensonde.watch.vocabulary import FIELDS


def complete(text: str, table: Table, inspector: Inspector) -> tuple[int, list[str]]:
    """From the text before the cursor: how many characters to replace, and what may stand there."""
    current = text.rpartition(";")[2].lstrip()
    word, blank, rest = current.partition(" ")
    if not blank:
        fitting = [command for command in table if command.name.startswith(word)]
        blank = " " if len(fitting) == 1 and fitting[0].usage else ""
        return len(word), [command.name + blank for command in fitting]
    try:
        command = table.find(word)
    except UsageError:
        return 0, []
    last = re.split(r"\s", rest)[-1]
    return len(last), sorted(
        c for c in _candidates(command, rest.lstrip(), last, table, inspector) if c.startswith(last)
    )


def _candidates(command: Command, rest: str, last: str, table: Table, inspector: Inspector) -> list[str]:
    if command.completes == "words":
        return list(command.words)
    if command.completes == "commands":
        return table.names
    if command.completes == "nothing":
        return []
    after_sites = rest.partition(" ")[1] if command.completes == "watch" else re.search(r"\sif\s", rest)
    if after_sites:
        return [*(condition.name for condition in CONDITIONS), *FIELDS]
    return known_addresses(inspector) if ":" in last else names(inspector)
