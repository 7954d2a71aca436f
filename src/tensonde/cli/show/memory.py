"""What a training takes of memory, as `tensonde check --memory` prints it."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.text import Text

from tensonde.cli.show.screen import console, table
from tensonde.model.documents import version_of
from tensonde.model.facts import MemoryFact, MemoryPart
from tensonde.model.memory import NAMES, USES, fits, peak_at, size

MOST_ROWS = 12


def memory_json(fact: MemoryFact, limit: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"schema": version_of("memory"), **msgspec.to_builtins(fact)}
    found["limit"] = limit
    found["fits"] = None if limit is None or not fact.peak else fact.peak <= limit
    found["largest_batch"] = None if limit is None else fits(fact, limit)
    return found


def show_memory(fact: MemoryFact, limit: int | None) -> None:
    out = console()
    if not fact.peak:
        out.print(Text(f"what the training takes of memory is not known: {fact.why}", style="bold red"))
        return
    where = f" of {fact.module}" if fact.module else ""
    at = f" ({fact.line})" if fact.line else ""
    out.print(Text(f"peak: {size(fact.peak)} on {fact.device}", style="bold"))
    out.print(f"in step {fact.step}, {fact.phase}, when `{fact.op}`{where}{at} has its result")
    others = [f"{size(peak)} on {device}" for device, peak in fact.others.items() if device != "cpu"]
    if others:
        out.print(f"and {', '.join(others)}")
    out.print()
    rows = [(NAMES[use], size(fact.uses[use]), f"{fact.uses[use] / fact.peak:.0%}") for use in USES if use in fact.uses]
    out.print(table(("at the peak", "bytes", "share"), rows, right=("bytes", "share")))
    computed = [part for part in fact.lines if part.bytes]
    if computed:
        out.print()
        lines = [_row(part) for part in computed[:MOST_ROWS]]
        out.print(table(("module", "line", "use", "tensors", "bytes"), lines, right=("tensors", "bytes")))
        if len(computed) > MOST_ROWS:
            out.print(f"and {len(computed) - MOST_ROWS} more", style="dim")
    out.print()
    _show_growth(fact)
    _show_batch(fact, limit)


def _row(part: MemoryPart) -> tuple[str, ...]:
    line = f"{part.line}  {part.line.code[:60]}" if part.line else ""
    return part.module, line, part.use, str(part.tensors), size(part.bytes)


def _show_growth(fact: MemoryFact) -> None:
    out = console()
    if not fact.growth:
        if len(fact.steps) > 2:
            out.print("memory does not grow from step to step")
        return
    out.print(Text(f"every step leaves {size(fact.growth)} behind", style="bold red"))
    for keeper in fact.keepers[:3]:
        at = f", filled at {keeper.line}  {keeper.line.code}" if keeper.line else ""
        out.print(f"`{keeper.name}` holds {size(keeper.bytes)} of earlier steps{at}")
    if any(keeper.graphs for keeper in fact.keepers):
        out.print("put .item() or .detach() into it: a tensor with its graph keeps all that its step has computed")


def _show_batch(fact: MemoryFact, limit: int | None) -> None:
    out = console()
    if not fact.envelope:
        out.print(f"how it depends on the batch is not known: {fact.why or 'the step was not run again'}")
    else:
        twice = peak_at(fact, 2 * fact.batch) or 0
        out.print(f"batches of {fact.batch}: {size(fact.peak)}; of {2 * fact.batch}: {size(twice)}")
    if limit is None:
        return
    good = fact.peak <= limit
    said = "fits" if good else "does not fit"
    out.print(Text(f"it {said} into {size(limit)}", style="bold green" if good else "bold red"))
    largest = fits(fact, limit)
    if largest:
        out.print(f"the largest batch that fits has {largest} samples")
    elif largest == 0:
        out.print("no batch fits, not even of one sample")
