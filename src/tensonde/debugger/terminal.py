"""Where the debugger talks: the terminal, or else standard error; never the training's standard output.

Text is given in pieces, plain or with a style, so that what is shown can be tested without a terminal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from tensonde.model.printable import printable

Piece = str | tuple[str, str]
"""Text, or text with the name of a style."""

STYLES = {"bad": "1;31", "title": "1", "dim": "2", "site": "36", "code": "33", "good": "32"}
PLAIN_WIDTH = 120


class Reader(Protocol):
    """Raises EOFError at the end of input and KeyboardInterrupt when the user gives up the line."""

    def read(self, prompt: str) -> str: ...


class Terminal:
    """`interactive`: a person types. Belongs to the training thread, like the stop it serves."""

    def __init__(self, sink: TextIO, reader: Reader, *, interactive: bool, colour: bool | None = None) -> None:
        self.sink = sink
        self.reader = reader
        self.interactive = interactive
        self.colour = _has_colour(sink) if colour is None else colour

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if self.interactive else PLAIN_WIDTH

    def read(self, prompt: str) -> str:
        self.sink.flush()
        return self.reader.read(prompt)

    def line(self, *pieces: Piece) -> None:
        """One line."""
        self.sink.write("".join(self._styled(piece) for piece in pieces) + "\n")
        self.sink.flush()

    def text(self, text: str) -> None:
        self.line(text)

    def problem(self, text: str) -> None:
        self.line(("error: ", "bad"), text)

    def warning(self, text: str) -> None:
        self.line(("warning: ", "code"), text)

    def table(self, rows: Sequence[Sequence[Piece]], *, titles: Sequence[str] = (), indent: int = 2) -> None:
        """Columns as wide as they need to be; numbers to the right."""
        lines: list[Sequence[Piece]] = [[(title, "dim") for title in titles]] if titles else []
        lines += [[_fit(piece) for piece in row] for row in rows]
        columns = max((len(row) for row in lines), default=0)
        widths = [max((len(_plain(row[k])) for row in lines if k < len(row)), default=0) for k in range(columns)]
        right = [all(_is_number(_plain(row[k])) for row in rows if k < len(row)) for k in range(columns)]
        for row in lines:
            pieces: list[Piece] = [" " * indent]
            for k, piece in enumerate(row):
                gap = " " * (widths[k] - len(_plain(piece)))
                last = k == len(row) - 1
                pieces += [gap, piece] if right[k] else [piece, "" if last else gap]
                pieces.append("" if last else "  ")
            self.line(*pieces)

    def urgent(self, text: str) -> None:
        """From a signal, where the sink may be in the middle of a write."""
        with contextlib.suppress(OSError, ValueError):
            os.write(self.sink.fileno(), f"{printable(text)}\n".encode())

    def _styled(self, piece: Piece) -> str:
        if isinstance(piece, str):
            return printable(piece)
        text, style = printable(piece[0]), piece[1]
        return f"\033[{STYLES[style]}m{text}\033[0m" if self.colour and style and text else text


def _fit(piece: Piece) -> Piece:
    """Spelt out before columns are measured."""
    return printable(piece) if isinstance(piece, str) else (printable(piece[0]), piece[1])


def _plain(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece[0]


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return text in ("", "-", "—")
    return True


def _has_colour(sink: TextIO) -> bool:
    return sink.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def open_terminal(complete: Callable[[str], tuple[int, list[str]]]) -> Terminal:
    """The user's terminal, with editing and completion; other standard input is read line by line."""
    source, errors = sys.__stdin__, sys.__stderr__ or sys.stderr
    if source is not None and at_a_terminal():
        from tensonde.debugger.prompt import PromptReader

        sink = errors
        with contextlib.suppress(OSError):
            sink = open("/dev/tty", "w", encoding=errors.encoding, errors="replace")  # noqa: SIM115
        return Terminal(sink, PromptReader(source, sink, complete), interactive=True)
    return Terminal(errors, ScriptReader(source, errors), interactive=False)


def at_a_terminal() -> bool:
    """Whether a person types."""
    try:
        return sys.__stdin__ is not None and sys.__stdin__.isatty()
    except ValueError:  # closed
        return False


class ScriptReader:
    """Commands from a file or a pipe, shown with the prompt so that the output reads like a session."""

    def __init__(self, source: TextIO | None, sink: TextIO) -> None:
        self.source, self.sink = source, sink

    def read(self, prompt: str) -> str:
        self.sink.write(prompt)
        self.sink.flush()
        try:
            line = self.source.readline() if self.source is not None else ""
        except (OSError, ValueError):
            line = ""
        self.sink.write((line.rstrip("\n") if line else "") + "\n")
        self.sink.flush()
        if not line:
            raise EOFError
        return line.rstrip("\n")
