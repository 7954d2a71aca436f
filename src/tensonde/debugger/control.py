"""How the training goes on: continue, step, next, until, finish, detach, quit."""

from __future__ import annotations

from tensonde.debugger.context import Context
from tensonde.debugger.known import warn_if_unknown
from tensonde.debugger.table import Command, pick
from tensonde.errors import UsageError
from tensonde.model.stop import Resume
from tensonde.watch.pattern import Pattern


def go(context: Context, argument: str) -> Resume:
    nothing(argument, "continue")
    return Resume()


def step(context: Context, argument: str) -> Resume:
    return Resume("step", count(argument, "step"))


def next_(context: Context, argument: str) -> Resume:
    if argument:
        pick(argument, ("op",), "next")
        return Resume("nextop")
    return Resume("next")


def next_op(context: Context, argument: str) -> Resume:
    nothing(argument, "ni")
    return Resume("nextop")


def until(context: Context, argument: str) -> Resume:
    if not argument:
        raise UsageError("until which site? For example `until blocks.3.attn:grad`.")
    Pattern.parse(argument)
    warn_if_unknown(context, argument)
    return Resume("until", sites=argument)


def finish(context: Context, argument: str) -> Resume:
    nothing(argument, "finish")
    if not context.stop.modules and context.stop.site is None:
        raise UsageError("no module is running here, so there is none to finish; use `step` or `next`.")
    return Resume("finish")


def detach(context: Context, argument: str) -> Resume:
    nothing(argument, "detach")
    for number in list(context.gate.breakpoints):
        context.gate.remove_breakpoint(number)
    context.leave()
    context.terminal.text("detached: the training goes on without stops")
    return Resume()


def quit_(context: Context, argument: str) -> Resume | None:
    nothing(argument, "quit")
    if context.terminal.interactive:
        try:
            answer = context.terminal.read(f"end the training at step {context.stop.moment.step}? (y or n) ")
        except EOFError:
            answer = "n"
        if not answer.strip().lower().startswith("y"):
            context.terminal.text("still here; `detach` lets the training run on without the debugger")
            return None
    context.leave()
    return Resume("quit")


def nothing(argument: str, name: str) -> None:
    if argument:
        raise UsageError(f"{name} takes no argument, but got {argument!r}.")


def count(argument: str, name: str) -> int:
    if not argument:
        return 1
    if not argument.isdecimal() or int(argument) < 1:
        raise UsageError(f"{name} takes how often, a whole number from 1, not {argument!r}.")
    return int(argument)


COMMANDS = (
    Command(
        name="continue", aliases=("c", "cont"), run=go, repeats=False,
        summary="run on to the next breakpoint or hit",
        detail="Ctrl-C pauses a running training at the next module, gradient or step end.",
    ),
    Command(
        name="step", usage="[N]", aliases=("s",), run=step,
        summary="run to the end of this optimizer step, or N steps on",
        example="step 10",
    ),
    Command(
        name="next", usage="[op]", aliases=("n",), run=next_, completes="words", words=("op",),
        summary="run to the next module's output or gradient, or to the next op",
        detail="In the backward pass it stops at the gradient of each module's output, last module first.",
        example="next op",
    ),
    Command(
        name="ni", run=next_op, summary="the same as `next op`: run to the next op's output",
        detail="Ops are what your code calls: softmax, linear, add. While the debugger looks at ops, "
        "each costs some microseconds.",
    ),
    Command(
        name="until", usage="SITE", aliases=("u", "unt"), run=until, completes="sites",
        summary="run until a site is reached",
        detail="SITE is an address or a pattern. Without a role it means the output, the gradient or "
        "the value.",
        example="until blocks.*.attn:grad",
    ),
    Command(
        name="finish", aliases=("f", "fin"), run=finish,
        summary="run until the current module has returned its output",
        detail="In the backward pass: until the gradient has left the current module.",
    ),
    Command(
        name="detach", run=detach, repeats=False,
        summary="remove all breakpoints and let the training run on",
        detail="Ctrl-D does the same, and so does the end of a command file.",
    ),
    Command(
        name="quit", aliases=("q", "exit"), run=quit_, repeats=False,
        summary="end the training cleanly",
        detail="The script's `finally` blocks and exit functions run, and the recording is closed.",
    ),
)  # fmt: skip
