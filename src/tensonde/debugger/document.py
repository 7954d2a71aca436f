"""Writes docs/debugger-commands.md from the command table: `python -m tensonde.debugger.document [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from tensonde.debugger.commands import TABLE
from tensonde.debugger.table import Command

PAGE = "docs/debugger-commands.md"


def page() -> str:
    lines = [
        "# Debugger commands",
        "",
        "This page is made from the command table: `python -m tensonde.debugger.document` writes it.",
        "",
        "Names may be shortened as long as they are unambiguous, `;` separates commands on one line,",
        "an empty line repeats the last command, and lines that begin with `#` are comments.",
        "Ctrl-C pauses a running training at the next permitted point (twice within two seconds",
        "interrupts the program), Ctrl-C at the prompt clears the line, Ctrl-D detaches.",
    ]
    for group, commands in TABLE.groups.items():
        lines += ["", f"## {group}"]
        for command in commands:
            lines += ["", *_entry(command)]
    return "\n".join(lines) + "\n"


def _entry(command: Command) -> list[str]:
    lines = [f"### `{command.synopsis}`", "", f"{_sentence(command.summary)}"]
    if command.detail:
        lines[-1] += f" {command.detail}"
    if command.aliases:
        lines += ["", "Also: " + ", ".join(f"`{alias}`" for alias in command.aliases)]
    if command.example:
        lines += ["", "```text", command.example, "```"]
    return lines


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else PAGE).write_text(page(), encoding="utf-8")
