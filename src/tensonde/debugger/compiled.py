"""Compiled graphs against themselves uncompiled, on request."""

from __future__ import annotations

from tensonde.debugger.context import Context
from tensonde.debugger.control import nothing
from tensonde.debugger.table import Command
from tensonde.debugger.terminal import Piece
from tensonde.model.graph import GraphCheck
from tensonde.model.stop import Resume


def verify(context: Context, argument: str) -> Resume | None:
    nothing(argument, "verify")
    if show(context):
        return None
    context.terminal.text("no compiled graph is at hand: running to the end of the step")
    context.notes.promised = _promised
    return Resume("step")


def _promised(context: Context) -> None:
    if not show(context):
        context.terminal.text("no compiled graph was called; `torch.compile` makes them")


def show(context: Context) -> int:
    """Shows the checks as they come; how many."""
    count = 0
    for check in context.inspector.verify():
        count += 1
        head = f"graph {check.graph}  {check.phase:8}  {check.backend}  {check.nodes} nodes  "
        context.terminal.line("  ", head, *_outcome(check))
        if check.source is not None:
            context.terminal.line("    ", (str(check.source), "dim"), "  ", (check.source.code, "code"))
    return count


def _outcome(check: GraphCheck) -> list[Piece]:
    if check.outcome == "same":
        return [("equal bit for bit", "good")]
    if check.outcome == "rounding":
        return [("equal within rounding", "good"), f" ({check.distance:.1e} of the norm, at most {check.max_abs:.1e})"]
    if check.outcome == "skipped":
        return [(f"not compared: {check.why}", "dim")]
    found = "departs first at " if check.exact else "departs, seen first at "
    return [(found, "bad"), (check.site, "site"), f" by {check.distance:.2g} of the norm (at most {check.max_abs:.2g})"]


COMMANDS = (
    Command(
        name="verify", run=verify,
        summary="compare torch.compile's results with those of the same graphs run uncompiled",
        detail="Every graph that was called in this step (or else the previous one), forward and backward, runs both ways on the same inputs. If they differ by more than rounding explains, the first node that departs is named, with its line. If nothing was called yet, the training first runs to the end of the step. The training itself does not change.",
    ),
)  # fmt: skip
