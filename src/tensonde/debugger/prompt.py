"""The prompt of a terminal: editing, lasting history, completion. Only this file imports prompt_toolkit."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

Complete = Callable[[str], tuple[int, list[str]]]
"""From the text before the cursor: how many of its last characters to replace, and what may stand there."""


class PromptReader:
    def __init__(self, source: TextIO, sink: TextIO, complete: Complete) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_Offers(complete),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            input=create_input(source),
            output=_output(sink),
        )

    def read(self, prompt: str) -> str:
        return self._session.prompt(ANSI(prompt), in_thread=_loop_runs())


def _output(sink: TextIO) -> Vt100_Output:
    """Without cursor position requests: a late answer would be left for the training to read."""
    output = Vt100_Output.from_pty(sink, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


class _Offers(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        length, candidates = self._complete(document.text_before_cursor)
        for candidate in candidates:
            yield Completion(candidate, start_position=-length)


class _Lasting(FileHistory):
    """A history that cannot be read or written is only forgotten."""

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def _history() -> History:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "tensonde" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return InMemoryHistory()
    return _Lasting(str(path))


def _loop_runs() -> bool:
    """The training itself runs in an event loop; the prompt then needs a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
