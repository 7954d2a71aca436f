"""The debugger at the terminal: the gate calls it at a stop, and it answers how to go on."""

from __future__ import annotations

import contextlib
import sys
from collections import deque

from tensonde.debugger.commands import TABLE
from tensonde.debugger.complete import complete
from tensonde.debugger.context import Context, Notes
from tensonde.debugger.control import detach
from tensonde.debugger.header import show_stop
from tensonde.debugger.interrupt import Interrupt
from tensonde.debugger.python import PythonDebugger
from tensonde.debugger.table import split_line
from tensonde.debugger.terminal import Terminal, at_a_terminal, open_terminal
from tensonde.errors import UsageError
from tensonde.model.stop import Resume, Stop
from tensonde.session.inspector import Inspector

PROMPT = "(tensonde) "


class Console:
    """A controller for the gate. Made in the training thread; the terminal is opened at the first stop.

    It never raises what is Tensonde's own fault: the message is shown and the prompt stays.
    """

    def __init__(self, inspector: Inspector, terminal: Terminal | None = None) -> None:
        self.inspector = inspector
        self._terminal = terminal
        self._python = PythonDebugger()
        self._notes = Notes()
        self._queue: deque[str] = deque()
        self._last = ""
        self._interrupt = Interrupt(inspector.session.gate.request_pause, self._urgent)
        if at_a_terminal() if terminal is None else terminal.interactive:
            self._interrupt.install()  # to nobody else a pause means anything: Ctrl-C ends the program, as without a debugger

    def __call__(self, stop: Stop) -> Resume:
        if self._terminal is None:
            self._terminal = open_terminal(self._complete)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()  # what the training printed belongs above what is shown now
        context = Context(self.inspector, stop, self._terminal, TABLE, self._python, self._leave, self._notes)
        with self._interrupt.talking():
            return self._talk(context)

    def _talk(self, context: Context) -> Resume:
        self._notes.listed = None
        plan = self._guarded(context, self._greet)
        while plan is None:
            plan = self._guarded(context, self._turn)
        if plan.kind == "quit" or self.inspector.session.gate.controller is not self:
            self._python.close(context)
        return plan

    def _guarded(self, context: Context, act: object) -> Resume | None:
        """Does one thing; whatever goes wrong is said in a line."""
        assert callable(act)
        terminal = context.terminal
        try:
            plan = act(context)
            assert plan is None or isinstance(plan, Resume)
            return plan
        except KeyboardInterrupt:
            if not terminal.interactive:
                raise
            terminal.text("")
        except EOFError:
            return detach(context, "")
        except UsageError as problem:
            terminal.problem(str(problem))
        except OSError as problem:  # the terminal is gone, or a file cannot be used
            terminal.problem(f"{problem}")
        except Exception as problem:
            terminal.problem(f"Tensonde failed here ({type(problem).__name__}: {problem}); the training is untouched.")
        self._queue.clear()
        return None

    def _greet(self, context: Context) -> Resume | None:
        """The header; or pdb again, where it asked for this stop."""
        plan = self._python.go_on(context)
        if plan is None:
            show_stop(context.terminal, context.stop, self.inspector)
            self._notes.keep_promise(context)
        return plan

    def _turn(self, context: Context) -> Resume | None:
        """One command."""
        text = self._next(context.terminal)
        if not text:
            return None
        word, _, argument = text.partition(" ")
        command = context.table.find(word)
        self._last = text if command.repeats else ""
        return command.run(context, argument.strip())

    def _next(self, terminal: Terminal) -> str:
        """The next command: left over from a line with several, or read; the last one for an empty line."""
        if self._queue:
            text = self._queue.popleft()
            terminal.line((PROMPT + text, "dim"))
            return text
        line = terminal.read(PROMPT).strip()
        if line.startswith("#"):
            return ""
        if not line:
            return self._last
        first, *rest = split_line(line) or [""]
        self._queue.extend(rest)
        return first

    def _leave(self) -> None:
        self.inspector.session.gate.controller = None
        self._queue.clear()
        self._interrupt.remove()

    def _complete(self, text: str) -> tuple[int, list[str]]:
        return (0, []) if self._python.talking else complete(text, TABLE, self.inspector)

    def _urgent(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal.urgent(text)
