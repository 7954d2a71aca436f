"""The debugger's commands for somebody who is not at this terminal: what they say is collected, what they ask goes back as a question."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, TextIO, cast

from tensonde.debugger.commands import TABLE
from tensonde.debugger.complete import complete
from tensonde.debugger.context import Context, Notes
from tensonde.debugger.header import show_stop
from tensonde.debugger.python import PythonDebugger
from tensonde.debugger.table import split_line
from tensonde.debugger.terminal import Piece, Terminal
from tensonde.errors import UsageError
from tensonde.model.stop import Resume, Stop
from tensonde.session.inspector import Inspector
from tensonde.session.serving.commands import Ask, Lines


class Pages(Terminal):
    """Keeps the pieces of each line, with their styles, until they are fetched."""

    def __init__(self) -> None:
        super().__init__(cast(TextIO, _Sink(self)), self, interactive=True, colour=False)
        self.lines: Lines = []
        self.ask: Ask | None = None

    @property
    def width(self) -> int:
        return 120

    def line(self, *pieces: Piece) -> None:
        shown = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
        self.lines.append([{"text": text, "style": style} for text, style in shown if text])

    def read(self, prompt: str) -> str:
        self.sink.flush()
        if self.ask is None:
            raise EOFError
        return self.ask(self.fetch(), prompt)

    def fetch(self) -> Lines:
        self.sink.flush()
        lines, self.lines = self.lines, []
        return lines

    def urgent(self, text: str) -> None:
        pass


class _Sink(io.TextIOBase):
    """For those that write text, as pdb does."""

    def __init__(self, pages: Pages) -> None:
        self._pages, self._rest = pages, ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._pages.line(line)
        return len(text)

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        if rest:
            self._pages.line(rest)


class RemoteConsole:
    """`session.serving.commands.Commands` by the terminal debugger's own table."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self._pages = Pages()
        self._python = PythonDebugger()
        self._notes = Notes()

    def run(self, line: str, stop: Stop, ask: Ask) -> tuple[Lines, Resume | None]:
        """An empty line shows where the training has stopped."""
        pages = self._pages
        pages.ask = ask
        context = Context(self.inspector, stop, pages, TABLE, self._python, lambda: None, self._notes)
        plan: Resume | None = None
        try:
            commands: Sequence[Any] = split_line(line)
            if not commands:
                plan = self._greet(context)
            for text in commands:
                word, _, argument = text.partition(" ")
                plan = TABLE.find(word).run(context, argument.strip())
                if plan is not None:
                    break
        except EOFError:
            pass
        except UsageError as problem:
            pages.problem(str(problem))
        except Exception as problem:
            pages.problem(f"Tensonde failed here ({type(problem).__name__}: {problem}); the training is untouched.")
        if plan is not None and plan.kind == "quit":
            self._python.close(context)
        return pages.fetch(), plan

    def _greet(self, context: Context) -> Resume | None:
        self._notes.listed = None
        plan = self._python.go_on(context)
        if plan is None:
            show_stop(context.terminal, context.stop, self.inspector)
            self._notes.keep_promise(context)
        return plan

    def complete(self, text: str) -> tuple[int, list[str]]:
        return (0, []) if self._python.talking else complete(text, TABLE, self.inspector)
