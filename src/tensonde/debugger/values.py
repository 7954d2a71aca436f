"""Tensors as they are: print them, write into them, save them."""

from __future__ import annotations

import os

import numpy as np

from tensonde.debugger.address import Reference, expand, parse_reference, split_outside
from tensonde.debugger.context import Context
from tensonde.debugger.numbers import kind_of
from tensonde.debugger.table import Command
from tensonde.errors import UsageError
from tensonde.session.inspector import Value

WHOLE = 1000
"""Numbers that are shown all at once."""
PAGE = 20
MOST = 8
"""How many tensors one command prints."""


def reference(context: Context, text: str) -> Reference:
    return parse_reference(text, context.inspector.addresses())


def fetch(context: Context, given: Reference, *, before: bool = False) -> Value:
    return context.inspector.value(given.address, before=before, index=given.index)


def default_reference(context: Context, argument: str, name: str) -> str:
    """Without an argument, the site of the stop is meant."""
    if argument:
        return argument
    if context.stop.site is None:
        raise UsageError(f"{name} which site? For example `{name} blocks.0.attn:out`; `info sites` lists them.")
    return context.stop.site.address


def print_(context: Context, argument: str) -> None:
    given = reference(context, default_reference(context, argument, "print"))
    addresses = expand(context.inspector, given.address)
    if len(addresses) == 1:
        show_page(context, fetch(context, Reference(addresses[0], given.index, given.text)), given.text)
        return
    for address in addresses[:MOST]:
        show(context, fetch(context, Reference(address, given.index, given.text)), given.text)
    if len(addresses) > MOST:
        context.terminal.text(f"… and {len(addresses) - MOST} more sites match; narrow the pattern to see them")


def show_page(context: Context, value: Value, part: str) -> None:
    """The whole in short; where that leaves rows out, the same command again shows them, page by page."""
    key = f"{context.stop.moment} {value.address}{part}"
    printed, context.notes.printed = context.notes.printed, None
    if value.array.size <= WHOLE or value.array.ndim == 0:
        show(context, value, part)
        return
    wide = value.array.reshape(-1, value.array.shape[-1]) if value.array.ndim > 1 else value.array.reshape(-1, 1)
    if printed is None or printed[0] != key:
        show(context, value, part)
        context.notes.printed = (key, 0)
        context.terminal.line((f"  in short; an empty line shows its {len(wide)} rows, {PAGE} at a time", "dim"))
        return
    first = printed[1]
    rows = wide[first : first + PAGE]
    for k, row in enumerate(rows, first):
        index = ", ".join(map(str, np.unravel_index(k, value.array.shape[:-1]))) if value.array.ndim > 1 else str(k)
        prefix = f"  [{index}] "
        lines = values_text(row, context.terminal.width - len(prefix)).splitlines()
        for n, line in enumerate(lines):
            context.terminal.line((prefix if n == 0 else " " * len(prefix), "dim"), line.removeprefix("  "))
    last = first + len(rows)
    if last < len(wide):
        context.notes.printed = (key, last)
        context.terminal.line((f"  … {len(wide) - last} more rows; an empty line goes on", "dim"))


def show(context: Context, value: Value, part: str) -> None:
    terminal = context.terminal
    device = "" if value.device == "cpu" else f"  {value.device}"
    terminal.line((value.address + part, "site"), f"  {kind_of(value.dtype, value.shape)}{device}")
    if value.note:
        terminal.line((f"  note: {value.note}", "code"))
    terminal.text(values_text(value.array, terminal.width))


def values_text(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], width: int) -> str:
    """Summarised as numpy does."""
    with np.printoptions(precision=4, threshold=WHOLE, edgeitems=3, linewidth=max(width - 2, 40), suppress=False):
        text = np.array2string(array)
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def set_(context: Context, argument: str) -> None:
    target, sign, text = argument.rpartition("=")
    if not sign or not target.strip():
        raise UsageError("write `set SITE[slice] = NUMBER`, for example `set head.weight[0, :] = 0`.")
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"{text.strip()!r} is not a number; for anything else use Python in `pdb`.") from None
    given = reference(context, target)
    context.terminal.warning(context.inspector.assign(given.address, given.index, number))


def save(context: Context, argument: str) -> None:
    words = split_outside(argument)
    if len(words) != 2:
        raise UsageError("write `save SITE FILE.npy`, for example `save blocks.0.attn:out attn.npy`.")
    value = fetch(context, reference(context, words[0]))
    path = words[1] if words[1].endswith(".npy") else f"{words[1]}.npy"
    try:
        with open(path, "xb") as file:
            np.save(file, value.array)
    except FileExistsError:
        raise UsageError(f"{path} exists already and is not overwritten; give another name.") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}.") from None
    stored = (
        "" if value.array.dtype.name == value.dtype else f" (as {value.array.dtype.name}: npy has no {value.dtype})"
    )
    context.terminal.text(f"saved {words[0]} {kind_of(value.dtype, value.shape)} to {os.path.abspath(path)}{stored}")


_SLICE = "A slice in numpy's syntax may follow the address: `lstm:out[1][0, :3]` is a slice of the second output."

COMMANDS = (
    Command(
        name="print", usage="[SITE[slice]]", aliases=("p",), run=print_, completes="sites",
        summary="show the values of a tensor, or of the one at this stop",
        detail=f"{_SLICE} SITE may be a pattern. A bare name means a parameter's value or a module's output. "
        "Python expressions are for `pdb`.",
        example="print blocks.0.attn:out[0, :, 3:5]",
    ),
    Command(
        name="set", usage="SITE[slice] = NUMBER", run=set_, completes="sites", repeats=False,
        summary="write a number into a live tensor",
        detail="From here on the training is no longer bit-identical to an undisturbed one; the "
        "recording notes it.",
        example="set head.weight[0, :] = 0",
    ),
    Command(
        name="save", usage="SITE[slice] FILE.npy", run=save, completes="sites", repeats=False,
        summary="write a tensor to a numpy file, which must not exist yet",
        example="save head:out[0] head.npy",
    ),
)  # fmt: skip
