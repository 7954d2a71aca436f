"""Python variables at a stop: expressions and local names in the frames of the user's code."""

from __future__ import annotations

import re
import reprlib
from types import FrameType
from typing import Any

from tensonde.debugger.context import Context
from tensonde.debugger.table import Command
from tensonde.errors import UsageError
from tensonde.program.frames import user_frames

LONGEST = 400
_FRAME = re.compile(r"@(\d+)\s*")


def evaluate(context: Context, argument: str) -> None:
    """What the expression does is the user's own doing, as at pdb's prompt."""
    frame, text = chosen(context, argument)
    if not text:
        raise UsageError("eval what? For example `eval x.shape`, or `eval @1 step` for the frame that called this one.")
    with context.inspector.aside():
        try:
            value = eval(compile(text, "<eval>", "eval"), frame.f_globals, frame.f_locals)
        except Exception as problem:
            raise UsageError(f"{type(problem).__name__}: {problem}") from None
        shown = described(value, whole=True)
    context.terminal.text(shown)


def locals_(context: Context, argument: str) -> None:
    frame, rest = chosen(context, argument)
    if rest:
        raise UsageError("locals takes at most a frame: `locals @1`; `eval NAME` shows one variable.")
    with context.inspector.aside():
        rows = [
            (name, described(value))
            for name, value in sorted(frame.f_locals.items())
            if not name.startswith("__") and not is_definition(value)
        ]
    for name, text in rows:
        context.terminal.line((name, "site"), " = ", text)
    if not rows:
        context.terminal.text("no variables here yet")


def chosen(context: Context, argument: str) -> tuple[FrameType, str]:
    """The frame that `@N` names, counted as `where` shows them; the innermost without it. And the rest of the line."""
    frames = user_frames(context.stop.frame)
    if not frames:
        raise UsageError("no frame of your own code is on the Python stack here; `next` or `step` leads to one.")
    found = _FRAME.match(argument)
    number = int(found[1]) if found else 0
    if number >= len(frames):
        raise UsageError(f"there is no frame {number}; `where` shows {len(frames)}, and the innermost is 0.")
    return frames[number], argument[found.end() :] if found else argument


def is_definition(value: Any) -> bool:
    """Modules, functions and classes: names that a script's frame is full of, and nobody looks for."""
    return type(value).__name__ in ("module", "function", "type", "builtin_function_or_method")


def described(value: Any, *, whole: bool = False) -> str:
    """A value on one line; a tensor with type and shape, and with its values where they are few or asked for."""
    kind = type(value).__name__
    try:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            head = f"{kind} {str(value.dtype).rpartition('.')[2]} {list(value.shape)}"
            return f"{head}  {_text(value)}" if whole or not list(value.shape) else head
        return _text(value)
    except Exception as problem:  # a repr of the user's that fails
        return f"<{kind}, whose repr raises {type(problem).__name__}>"


def _text(value: Any) -> str:
    brief = reprlib.Repr()
    brief.maxother = brief.maxstring = LONGEST
    brief.maxdict = brief.maxlist = brief.maxtuple = 8
    text = " ".join(brief.repr(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


COMMANDS = (
    Command(
        name="eval", run=evaluate,
        usage="[@FRAME] EXPRESSION",
        summary="a Python expression in the frame of your code",
        detail="`@1` is the frame that called the innermost one, as `where` counts them.",
        example="eval @1 optimizer.param_groups[0]['lr']",
    ),
    Command(
        name="locals", run=locals_, usage="[@FRAME]",
        summary="the variables in the frame of your code",
        detail="Modules, functions and classes are left out; `eval NAME` shows one of these, or one variable in full.",
        example="locals @1",
    ),
)  # fmt: skip
