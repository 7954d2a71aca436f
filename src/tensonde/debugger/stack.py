"""Where the training is: phase, modules, Python frames, and source."""

from __future__ import annotations

import os

from tensonde.debugger.context import Context
from tensonde.debugger.control import nothing
from tensonde.debugger.header import is_backward, shape_at
from tensonde.debugger.numbers import kind_of
from tensonde.debugger.places import find_file
from tensonde.debugger.sources import excerpt
from tensonde.debugger.table import Command
from tensonde.debugger.terminal import Piece
from tensonde.errors import UsageError
from tensonde.program.frames import user_frames
from tensonde.program.lines import code_at, display_path

AROUND = 5


def where(context: Context, argument: str) -> None:
    nothing(argument, "where")
    stop, terminal = context.stop, context.terminal
    terminal.line(
        (f"step {stop.moment.step} · {stop.moment.phase}", "title"),
        f" · call {stop.moment.call}" if stop.moment.call else "",
    )
    if stop.modules:
        terminal.line("modules  ", (" → ".join(stop.modules), "site"))
    if stop.site is not None:
        terminal.line("tensor   ", (stop.site.address, "site"), f"  {kind_of(stop.site.dtype, shape_at(stop))}")
    if is_backward(stop) and stop.source is not None:
        terminal.line(f"made in the forward pass by {stop.source}")
        for line in excerpt(stop.source.file, stop.source.line - 2, stop.source.line + 2, stop.source.line):
            terminal.line(*line)
    frames = user_frames(stop.frame)
    if not frames:
        terminal.text("no frame of your own code is on the Python stack here")
        return
    terminal.text("Python stack, innermost first")
    rows: list[list[Piece]] = []
    for k, frame in enumerate(frames):
        code = code_at(frame.f_code.co_filename, frame.f_lineno)
        mark: Piece = ("→", "title") if k == 0 else " "
        place = f"{display_path(frame.f_code.co_filename)}:{frame.f_lineno}"
        rows.append([mark, (place, "dim"), f"in {frame.f_code.co_name}", (code, "code")])
    terminal.table(rows, indent=1)


def list_(context: Context, argument: str) -> None:
    file, first, current = _range(context, argument)
    lines = excerpt(file, first, first + 2 * AROUND, current)
    if not lines:
        raise UsageError(f"there is no source for {display_path(file)} from line {first} on.")
    context.terminal.line((display_path(file), "dim"))
    for line in lines:
        context.terminal.line(*line)
    context.notes.listed = (file, first + 2 * AROUND)


def _range(context: Context, argument: str) -> tuple[str, int, int | None]:
    """The file, the first line, and the line to mark: around a line, on from the last listing, or here."""
    here = current_place(context)
    if argument:
        name, _, line = argument.rpartition(":")
        if not line.isdecimal():
            raise UsageError(f"{argument!r} is not a line; write `list 42` or `list train.py:42`.")
        file = find_file(name, context.stop) if name else (here[0] if here else "")
        if not file:
            raise UsageError(f"line {line} of which file? Write `list FILE:{line}`.")
        return file, max(int(line) - AROUND, 1), here[1] if here and here[0] == file else None
    if context.notes.listed is not None:
        file, last = context.notes.listed
        return file, last + 1, here[1] if here and here[0] == file else None
    if here is None:
        raise UsageError("no source line is known here; write `list FILE:LINE`.")
    return here[0], max(here[1] - AROUND, 1), here[1]


def current_place(context: Context) -> tuple[str, int] | None:
    """The line that the header showed: in the backward pass, a line of the forward pass."""
    stop = context.stop
    if is_backward(stop) and stop.source is not None:
        return os.path.abspath(stop.source.file), stop.source.line
    if stop.frame is not None:
        return stop.frame.f_code.co_filename, stop.frame.f_lineno
    return (os.path.abspath(stop.source.file), stop.source.line) if stop.source is not None else None


COMMANDS = (
    Command(
        name="where", aliases=("w", "bt"), run=where,
        summary="phase, step, modules, and the Python stack of your own code",
        detail="In the backward pass, it also shows the forward line of what is being differentiated.",
    ),
    Command(
        name="list", usage="[LINE | FILE:LINE]", aliases=("l",), run=list_,
        summary="source around the current line; repeated, the lines after those",
        example="list train.py:42",
    ),
)  # fmt: skip
