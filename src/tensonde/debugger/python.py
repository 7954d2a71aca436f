"""Python's own debugger in the user's frame, and the way back.

`c` in pdb lets the training go on as with Tensonde's `continue`, `q` comes back to Tensonde's prompt. `n`, `s`, `r`
and the like run the training on to pdb's next stop, which comes through the gate like any other and opens pdb
again. Only the user's own files are stepped through. Meanwhile pdb has the interpreter's trace function, and
Tensonde's line breakpoints rest.
"""

from __future__ import annotations

import builtins
import pdb
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from tensonde.debugger.context import Context
from tensonde.debugger.control import nothing
from tensonde.debugger.table import Command
from tensonde.debugger.terminal import Terminal
from tensonde.errors import UsageError
from tensonde.model.stop import Resume, Stop
from tensonde.program.frames import is_user_file
from tensonde.session.session import Session


class PythonDebugger:
    """Belongs to the training thread. `stepping`: pdb asked for the next stop."""

    def __init__(self) -> None:
        self.stepping = False
        self.talking = False
        self._pdb: _Pdb | None = None

    def open(self, context: Context) -> Resume | None:
        """pdb in the frame of the stop; None when the user comes back to Tensonde's prompt."""
        frame = context.stop.frame
        if frame is None:
            raise UsageError("no frame of your own code is on the Python stack here; `next` or `step` leads to one.")
        if self._pdb is None:
            self._pdb = _Pdb(context.terminal, context.session)
        self._lend(context, True)
        self.talking = True
        try:
            with _names(tensor=context.stop.tensor, tensonde_stop=context.stop, tensonde_value=_values(context)):
                wish = self._pdb.talk(frame)
        finally:
            self.talking = False
        self.stepping = wish == "step" or (wish == "continue" and bool(self._pdb.breaks))
        if self.stepping:
            self._pdb.follow(frame)
        else:
            self.close(context)
        return None if wish == "quit" else Resume()

    def go_on(self, context: Context) -> Resume | None:
        """At a new stop: pdb again, where it asked for this one."""
        if not self.stepping:
            return None
        if context.stop.reason == "line" and context.stop.breakpoint is None:
            return self.open(context)
        self.close(context)
        return None

    def close(self, context: Context) -> None:
        """Gives the trace function back."""
        self.stepping = False
        if self._pdb is not None:
            self._pdb.unfollow()
        self._lend(context, False)

    def _lend(self, context: Context, lent: bool) -> None:
        if context.gate.trace_lent != lent:
            context.gate.trace_lent = lent
            context.gate.changed()


class _Pdb(pdb.Pdb):
    """bdb calls `interaction` at its stops; that goes to the gate, and comes back as `talk`."""

    def __init__(self, terminal: Terminal, session: Session) -> None:
        super().__init__(stdin=_Lines(terminal), stdout=terminal.sink, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self.prompt = ""
        self.session = session
        self.wish = "step"
        self.following = False
        self.reset()

    def talk(self, frame: FrameType) -> str:
        self.wish = "step"
        super().interaction(frame, None)
        return self.wish

    def interaction(self, frame: FrameType | None, traceback: TracebackType | None = None) -> None:
        if frame is not None and self.following:
            self.session.on_stop(Stop("line", self.session.moment, frame=frame))

    def follow(self, frame: FrameType) -> None:
        """From now on the interpreter reports to pdb what happens in the user's frames."""
        self.following = True
        walk: FrameType | None = frame
        while walk is not None:
            if is_user_file(walk.f_code.co_filename):
                walk.f_trace = self.trace_dispatch
            self.botframe = walk
            walk = walk.f_back
        sys.settrace(self.trace_dispatch)

    def unfollow(self) -> None:
        if not self.following:
            return
        self.following = False
        sys.settrace(None)
        walk: FrameType | None = sys._getframe(1)
        while walk is not None:
            if walk.f_trace == self.trace_dispatch:
                walk.f_trace = None
            walk = walk.f_back

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        super().trace_dispatch(frame, event, arg)
        return self.trace_dispatch if self.following else frame.f_trace

    def stop_here(self, frame: FrameType) -> bool:
        return super().stop_here(frame) and is_user_file(frame.f_code.co_filename)

    def do_continue(self, arg: str) -> bool:
        self.wish = "continue"
        self._set_stopinfo(self.botframe, None, -1)  # type: ignore[attr-defined]
        return True

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> bool:
        """Back to Tensonde's prompt."""
        self.wish = "quit"
        return True

    do_q = do_exit = do_EOF = do_quit

    def do_run(self, arg: str) -> None:
        self.error("the training cannot be started again from here")

    do_restart = do_run


class _Lines:
    """Standard input for pdb: Tensonde's prompt, so that nothing goes to the training's standard output."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def readline(self) -> str:
        try:
            return self._terminal.read("(Pdb) ") + "\n"
        except EOFError:
            return ""


@contextmanager
def _names(**given: Any) -> Iterator[None]:
    """Names that are there while pdb talks, as builtins: they never hide one of the user's own."""
    chosen = {name: value for name, value in given.items() if not hasattr(builtins, name)}
    vars(builtins).update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            vars(builtins).pop(name, None)


def _values(context: Context) -> Any:
    return lambda address: context.inspector.value(address).array


def pdb_(context: Context, argument: str) -> Resume | None:
    nothing(argument, "pdb")
    return context.python.open(context)


COMMANDS = (
    Command(
        name="pdb", aliases=("python", "py"), run=pdb_, repeats=False,
        summary="Python's debugger in the frame of your code",
        detail="The names `tensor` (at this stop), `tensonde_stop` and `tensonde_value('SITE')` are available unless your code has such names. "
        "`n`, `s` and `r` step through your own files, `c` continues the training, `q` returns to Tensonde. Modules that you call from pdb's prompt are not observed. Line breakpoints are off while pdb steps.",
        example="pdb",
    ),
)  # fmt: skip
