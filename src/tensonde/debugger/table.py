"""What a command is, and how a word finds one. Feeds `help`, completion and docs/debugger-commands.md."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tensonde.errors import UsageError
from tensonde.model.stop import Resume

if TYPE_CHECKING:
    from tensonde.debugger.context import Context

Completes = Literal["nothing", "sites", "watch", "words", "commands"]
"""What TAB offers after it: sites; sites, then conditions; the command's own `words`; names of commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`run` gets what follows the name; a Resume from it lets the training go on.

    `usage` names the arguments, `repeats` is whether an empty line runs it again.
    """

    name: str
    run: Callable[[Context, str], Resume | None]
    summary: str
    usage: str = ""
    aliases: tuple[str, ...] = ()
    detail: str = ""
    example: str = ""
    completes: Completes = "nothing"
    words: tuple[str, ...] = ()
    repeats: bool = True

    @property
    def synopsis(self) -> str:
        return f"{self.name} {self.usage}".rstrip()


class Table:
    """Commands in groups. A word finds one by its name, an alias, or a beginning that fits only one name."""

    def __init__(self, groups: Mapping[str, tuple[Command, ...]]) -> None:
        self.groups = groups
        self._named: dict[str, Command] = {}
        for command in self:
            for name in (command.name, *command.aliases):
                if name in self._named:
                    raise ValueError(f"two commands are called {name}")
                self._named[name] = command

    def __iter__(self) -> Iterator[Command]:
        for commands in self.groups.values():
            yield from commands

    @property
    def names(self) -> list[str]:
        return [command.name for command in self]

    def knows(self, word: str) -> bool:
        try:
            return bool(self.find(word))
        except UsageError:
            return False

    def find(self, word: str) -> Command:
        exact = self._named.get(word)
        if exact is not None:
            return exact
        fitting = [command for command in self if command.name.startswith(word)] if word else []
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(f"{word!r} may be {_either([c.name for c in fitting])}; type one more letter.")
        close = difflib.get_close_matches(word, self._named, n=1, cutoff=0.5)
        if close:
            raise UsageError(f"there is no command {word!r}; did you mean `{self._named[close[0]].name}`?")
        raise UsageError(f"there is no command {word!r}; `help` lists them, and `eval` evaluates Python.")


def pick(word: str, words: tuple[str, ...], subject: str) -> str:
    """One of a command's own words, which may be shortened."""
    fitting = [candidate for candidate in words if candidate.startswith(word)]
    if word in words or len(fitting) == 1:
        return word if word in words else fitting[0]
    close = fitting or difflib.get_close_matches(word, words, n=1, cutoff=0.5) or list(words)
    raise UsageError(f"{subject} {word!r} is not known; it may be {_either(close)}.")


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def split_line(line: str) -> list[str]:
    """The commands on a line, separated by `;` outside of quotes."""
    parts, quote, current = [], "", ""
    for letter in line:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == ";":
            parts.append(current)
            current = ""
            continue
        current += letter
    parts.append(current)
    return [part.strip() for part in parts if part.strip()]
