"""Tensors in numbers: statistics, histograms, and what changed since the step before."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensonde.debugger.address import Reference, expand, split_outside
from tensonde.debugger.change import Change, compare
from tensonde.debugger.context import Context
from tensonde.debugger.histogram import histogram, magnitudes
from tensonde.debugger.numbers import digest_of, kind_of, short
from tensonde.debugger.recorded import elsewhere, is_elsewhere
from tensonde.debugger.table import Command
from tensonde.debugger.terminal import Piece
from tensonde.debugger.values import default_reference, fetch, reference
from tensonde.digest.layout import COUNTS, STATS
from tensonde.errors import UsageError
from tensonde.session.inspector import Value

MOST_ROWS = 60
_COLUMNS = ("min", "mean", "max", "std", "norm", "zero", "nan")


def stats(context: Context, argument: str) -> None:
    given = reference(context, default_reference(context, argument, "stats"))
    addresses = expand(context.inspector, given.address)
    if len(addresses) > 1 and not given.index:
        several(context, addresses)
        return
    value = fetch(context, given)
    title(context, value, given.text)
    row = digest_of(value)
    facts: list[tuple[str, Piece]] = []
    for name in COUNTS:
        number = int(row[name])
        share = f"{number}  ({number / int(row['count']):.1%})" if number and name != "count" else str(number)
        facts.append((name, (share, "bad") if number and name in ("nan", "pos_inf", "neg_inf") else share))
    facts += [(name, short(float(row[name]))) for name in STATS]
    context.terminal.table([[(name, "dim"), shown] for name, shown in facts])


def several(context: Context, addresses: list[str]) -> None:
    rows: list[list[Piece]] = []
    for address in addresses[:MOST_ROWS]:
        try:
            value = context.inspector.value(address)
        except UsageError:
            continue
        row = digest_of(value)
        line: list[Piece] = [(address, "site"), kind_of(value.dtype, value.shape)]
        line += [short(float(row[name])) for name in _COLUMNS[:5]]
        line.append(f"{int(row['zero']) / max(int(row['count']), 1):.0%}")
        bad = int(row["nan"]) + int(row["pos_inf"]) + int(row["neg_inf"])
        line.append((str(bad), "bad" if bad else "dim"))
        rows.append(line)
    if not rows:
        raise UsageError(f"none of these {len(addresses)} sites has a value at hand; run on to one with `until`.")
    context.terminal.table(rows, titles=("", "", "min", "mean", "max", "std", "norm", "zeros", "nan/inf"))
    if len(addresses) > MOST_ROWS:
        context.terminal.text(f"… and {len(addresses) - MOST_ROWS} more sites match; narrow the pattern to see them")


def hist(context: Context, argument: str) -> None:
    given = reference(context, default_reference(context, argument, "hist"))
    value = fetch(context, given)
    title(context, value, given.text)
    array = np.abs(value.array) if np.iscomplexobj(value.array) else value.array
    numbers = array.astype(np.float64).reshape(-1)
    width = min(context.terminal.width - 30, 50)
    context.terminal.line(("  values", "title"))
    for line in histogram(numbers, width):
        context.terminal.line("  ", *line)
    context.terminal.line(("  magnitudes", "title"))
    for line in magnitudes(numbers, width):
        context.terminal.line("  ", *line)


def diff(context: Context, argument: str) -> None:
    words = split_outside(argument)
    if len(words) > 2:
        raise UsageError(
            "write `diff SITE` for the change since the step before, `diff SITE step:12`, `diff SITE run:NAME`, or `diff SITE OTHER`."
        )
    first = reference(context, words[0] if words else default_reference(context, "", "diff"))
    value = fetch(context, first)
    if len(words) == 2 and is_elsewhere(words[1]):
        # By its whole address: a bare name means a parameter's value or a module's output there as well.
        other, against = elsewhere(context, Reference(value.address, first.index, first.text), words[1])
    elif len(words) == 2:
        second = reference(context, words[1])
        other, against = fetch(context, second), str(second)
    else:
        other, against = fetch(context, first, before=True), "the step before"
    if value.shape != other.shape:
        kinds = kind_of(value.dtype, value.shape), kind_of(other.dtype, other.shape)
        raise UsageError(
            f"{first} is {kinds[0]} and {against} is {kinds[1]}: they cannot be compared element by element."
        )
    title(context, value, first.text)
    if other.note:
        context.terminal.line((f"  note on {against}: {other.note}", "code"))
    show_change(context, compare(value.array, other.array), against)


def show_change(context: Context, change: Change, against: str) -> None:
    share = f"{change.changed / max(change.count, 1):.1%}"
    context.terminal.line(
        "  against ", (against, "site"), f": {change.changed} of {change.count} elements changed ({share})"
    )
    if change.bad:
        context.terminal.line("  ", (f"{change.bad} elements are not finite on one side or both", "bad"))
    facts = {
        "max abs": change.max_abs,
        "mean abs": change.mean_abs,
        "relative L2": change.relative,
        "cosine": change.cosine,
    }
    context.terminal.line("  " + "  ".join(f"{name} {value:.6g}" for name, value in facts.items()))
    if change.largest:
        rows: list[Any] = [
            (f"[{', '.join(map(str, i))}]", short(b), short(a), short(a - b)) for i, a, b in change.largest
        ]
        context.terminal.table(
            rows,
            titles=("largest at", "before" if against == "the step before" else "other", "now", "change"),
        )


def title(context: Context, value: Value, part: str) -> None:
    context.terminal.line((value.address + part, "site"), f"  {kind_of(value.dtype, value.shape)}")
    if value.note:
        context.terminal.line((f"  note: {value.note}", "code"))


COMMANDS = (
    Command(
        name="stats", usage="[SITE[slice]]", run=stats, completes="sites",
        summary="statistics of a tensor: all fields of its digest; for several tensors, a table",
        detail="NaN and Inf are counted separately; every other statistic covers the finite values. SITE "
        "may be a pattern.",
        example="stats **.weight:grad",
    ),
    Command(
        name="hist", usage="[SITE[slice]]", run=hist, completes="sites",
        summary="histograms of a tensor's values and of their magnitudes",
        example="hist blocks.0.attn:grad",
    ),
    Command(
        name="diff", usage="[SITE[slice]] [OTHER[slice] | step:N | run:RUN[:N]]", run=diff, completes="sites",
        summary="what changed since the previous step, since another step or run that kept the tensor, or between two sites",
        detail="For a parameter, `before` is its value before the last optimizer step. Other steps and runs have the tensors that hits and `--dump` kept.",
        example="diff head.weight step:12",
    ),
)  # fmt: skip
