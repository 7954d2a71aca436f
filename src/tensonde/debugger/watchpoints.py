"""Watchpoints: pause when a digest fulfils a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensonde.debugger.context import Context
from tensonde.debugger.control import nothing
from tensonde.debugger.header import hit_line
from tensonde.debugger.known import warn_if_unknown
from tensonde.debugger.numbers import digest_of
from tensonde.debugger.table import Command
from tensonde.digest.layout import ROW
from tensonde.errors import UsageError
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.conditions import CONDITIONS


def watch(context: Context, argument: str) -> None:
    if not argument:
        show(context)
        return
    sites, _, condition = argument.partition(" ")
    point = context.session.watch(sites, condition.strip(), "pause")
    warn_if_unknown(context, sites)
    context.terminal.text(f"watchpoint {point.id}: {point} (pauses)")


def unwatch(context: Context, argument: str) -> None:
    if not argument:
        raise UsageError("unwatch which? `watch` lists the watchpoints with their numbers.")
    for word in argument.replace(",", " ").split():
        context.session.unwatch(number_of(context, word))
        context.terminal.text(f"removed watchpoint {word}")


def number_of(context: Context, word: str) -> int:
    known = [point.id for point in context.session.engine.watchpoints]
    if not word.isdecimal() or int(word) not in known:
        raise UsageError(f"there is no watchpoint {word!r}; there are: {', '.join(map(str, known)) or 'none'}.")
    return int(word)


def show(context: Context) -> None:
    points = context.session.engine.watchpoints
    if not points:
        context.terminal.text("there are no watchpoints; `watch **:grad norm > 1e3` makes one")
        return
    rows = [(str(p.id), p.sites, p.condition, p.action, "" if p.origin == "user" else p.origin) for p in points]
    context.terminal.table(rows, titles=("", "sites", "condition", "on hit", ""))


def recheck(context: Context, argument: str) -> None:
    """On digests in memory, and, where a site has none there, on one made from the value at hand."""
    chosen = None
    if argument:
        id = number_of(context, argument)
        chosen = [point for point in context.session.engine.watchpoints if point.id == id]
    rows = rows_at_hand(context)
    if not len(rows):
        raise UsageError("nothing was observed yet, so there is nothing to check; run on with `step`.")
    hits = context.session.engine.recheck(rows, chosen)
    for hit in hits[:50]:
        context.terminal.line("  ", *hit_line(hit))
    more = ", of which 50 are shown; `recheck N` takes one watchpoint" if len(hits) > 50 else ""
    context.terminal.text(f"{len(hits)} hits in the digests of {len(rows)} sites{more}")


def rows_at_hand(context: Context) -> np.ndarray[Any, Any]:
    """The latest digest of each site, in the order they were made; values that were kept come first."""
    session = context.session
    rows = session.rows[: len(session.block)]
    last = {int(site): k for k, site in enumerate(rows["site"])}
    made = []
    for site in session.sites:
        if site.id in last:
            continue
        try:
            value = context.inspector.value(site.address)
        except UsageError:
            continue
        row = digest_of(value).copy()
        row["site"], row["phase"] = site.id, int(_phase(site))
        row["step"] = context.stop.moment.step if value.step is None else value.step
        made.append(row)
    return np.concatenate([np.array(made, ROW), rows[sorted(last.values())]])


def _phase(site: Site) -> Phase:
    """When a site is seen."""
    if site.role in (Role.GRAD, Role.GRAD_IN) and site.kind is not Kind.PARAMETER:
        return Phase.BACKWARD
    return Phase.OPTIMIZER if site.kind is Kind.PARAMETER else Phase.FORWARD


def conditions(context: Context, argument: str) -> None:
    nothing(argument, "conditions")
    rows = []
    for condition in CONDITIONS:
        given = ", ".join(p.name if p.default is None else f"{p.name}={p.default:g}" for p in condition.parameters)
        rows.append(((f"{condition.name}({given})" if given else condition.name, "site"), condition.meaning))
    context.terminal.table(rows)
    context.terminal.text("or any expression over digest fields, e.g. norm > 10 * avg(norm, 20)")


COMMANDS = (
    Command(
        name="watch", usage="[SITE CONDITION]", run=watch, completes="watch", repeats=False,
        summary="pause when a condition holds at a site; without arguments, list the watchpoints",
        detail="SITE is an address or a pattern, CONDITION a named one (see `conditions`) or an "
        "expression over digest fields.",
        example="watch **:grad norm > 1e3",
    ),
    Command(
        name="unwatch", usage="N ...", run=unwatch, repeats=False,
        summary="remove watchpoints by number",
        example="unwatch 3",
    ),
    Command(
        name="recheck", usage="[N]", run=recheck,
        summary="evaluate all watchpoints, or one, on the tensors available now",
        detail="Nothing is counted or recorded: it shows what would hit, even where a hit was already reported.",
        example="recheck 2",
    ),
    Command(
        name="conditions", run=conditions,
        summary="list the named conditions with their parameters",
    ),
)  # fmt: skip
