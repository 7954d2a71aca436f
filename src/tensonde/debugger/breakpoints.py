"""Breakpoints: at sites, at source lines, once, with a condition."""

from __future__ import annotations

import re

from tensonde.debugger.context import Context
from tensonde.debugger.known import warn_if_unknown
from tensonde.debugger.places import parse_place
from tensonde.debugger.table import Command
from tensonde.errors import UsageError
from tensonde.model.stop import Breakpoint
from tensonde.program.lines import display_path

_IF = re.compile(r"\s+if\s+")


def break_(context: Context, argument: str) -> None:
    if not argument:
        show(context)
    else:
        add(context, argument, once=False)


def tbreak(context: Context, argument: str) -> None:
    add(context, argument, once=True)


def add(context: Context, argument: str, *, once: bool) -> None:
    where, *rest = _IF.split(argument, maxsplit=1)
    condition = rest[0].strip() if rest else ""
    if not where.strip() or re.search(r"\sif$", argument) or where.startswith("if "):
        raise UsageError("break at what? `break blocks.3.attn`, `break train.py:42`, or either with `if CONDITION`.")
    place = parse_place(where, context.stop)
    if place is not None:
        check_python(condition)
        point = context.gate.add_breakpoint(file=place[0], line=place[1], condition=condition, once=once)
        context.terminal.text(f"{title(point)} at {describe(point)}")
    elif condition:
        conditional(context, where, condition, once=once)
    else:
        point = context.gate.add_breakpoint(sites=where, once=once)
        warn_if_unknown(context, where)
        context.terminal.text(f"{title(point)} at {describe(point)}")


def conditional(context: Context, sites: str, condition: str, *, once: bool) -> None:
    """A condition on a tensor is a watchpoint's business."""
    if once:
        raise UsageError(
            "a temporary breakpoint on a site takes no condition; use `break SITE if CONDITION`, then `unwatch`."
        )
    watchpoint = context.session.watch(sites, condition, "pause")
    warn_if_unknown(context, sites)
    context.terminal.text(
        f"made watchpoint {watchpoint.id} of it: {watchpoint} (it pauses; `unwatch {watchpoint.id}` removes it)"
    )


def check_python(condition: str) -> None:
    try:
        compile(condition or "True", "<condition>", "eval")
    except SyntaxError as problem:
        raise UsageError(f"the condition {condition!r} is not a Python expression: {problem.msg}.") from None


def delete(context: Context, argument: str) -> None:
    points = context.gate.breakpoints
    if not argument:
        number = len(points)
        for id in list(points):
            context.gate.remove_breakpoint(id)
        context.terminal.text(f"removed {number} breakpoints" if number != 1 else "removed 1 breakpoint")
        return
    for word in argument.replace(",", " ").split():
        if not word.isdecimal() or int(word) not in points:
            known = ", ".join(map(str, points)) or "none"
            raise UsageError(f"there is no breakpoint {word!r}; there are: {known} (watchpoints go with `unwatch`).")
        context.gate.remove_breakpoint(int(word))
        context.terminal.text(f"removed breakpoint {word}")


def show(context: Context) -> None:
    points = context.gate.breakpoints.values()
    if not points:
        context.terminal.text("there are no breakpoints; `break SITE` or `break FILE:LINE` makes one")
        return
    rows = [
        (str(p.id), describe(p), "once" if p.once else "", f"hit {p.hit_count} times" if p.hit_count else "")
        for p in points
    ]
    context.terminal.table(rows)


def title(point: Breakpoint) -> str:
    return f"temporary breakpoint {point.id}" if point.once else f"breakpoint {point.id}"


def describe(point: Breakpoint) -> str:
    where = point.sites or f"{display_path(point.file)}:{point.line}"
    return f"{where} if {point.condition}" if point.condition else where


_PLACES = (
    "SITE is an address or a pattern (`blocks.*.attn:grad`, `model/softmax#0`); without a role it "
    "means the output, the "
    "gradient or the value. FILE:LINE stops before that line runs; a number alone is a line of the "
    "file that runs now. "
)

COMMANDS = (
    Command(
        name="break", usage="[SITE | FILE:LINE] [if CONDITION]", aliases=("b",), run=break_,
        completes="sites", repeats=False,
        summary="stop at a site or at a source line; without arguments, list the breakpoints",
        detail=_PLACES
        + "The condition of a site is in the watch language and makes a watchpoint; that of a line is Python in the line's frame, which can also use Tensonde's step, epoch, rank, phase and loss, unless the frame has such names.",
        example="break train.py:42 if step > 3",
    ),
    Command(
        name="tbreak", usage="SITE | FILE:LINE [if PYTHON]", aliases=("tb",), run=tbreak,
        completes="sites", repeats=False,
        summary="stop there once",
        example="tbreak head:grad",
    ),
    Command(
        name="delete", usage="[N ...]", aliases=("d", "clear"), run=delete, repeats=False,
        summary="remove breakpoints by number, or all of them",
        example="delete 2",
    ),
)  # fmt: skip
