"""A verdict in the terminal: the sentence first, then the place, the settings, the losses, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensonde.compare.advice import advice, headline
from tensonde.compare.verdict import Divergence, Verdict

_COLOURS = {"equivalent": "bold green", "divergent": "bold red", "incomparable": "bold yellow"}
_MOST = 12


def show_verdict(console: Console, verdict: Verdict, *, nested: bool = False) -> None:
    head = Text(f"{verdict.verdict}: ", style=_COLOURS[verdict.verdict])
    head.append(headline(verdict), style="bold")
    console.print(head)
    if not nested and verdict.verdict != "incomparable":
        console.print(f"  A  {verdict.labels[0]}\n  B  {verdict.labels[1]}", style="dim", markup=False)
    if verdict.first is not None:
        _place(console, verdict.first)
    if verdict.cause:
        console.print(f"  {verdict.cause}", markup=False)
    if verdict.settings:
        table = Table("setting", "A", "B", box=None, padding=(0, 2), title_justify="left")
        for setting in verdict.settings[:_MOST]:
            table.add_row(*(Text(_value(x)) for x in (setting.what, setting.a, setting.b)))
        console.print()
        console.print(table)
        if len(verdict.settings) > _MOST:
            console.print(f"  and {len(verdict.settings) - _MOST} more (--json shows all)", style="dim")
    if verdict.losses.get("steps"):
        console.print()
        console.print(_losses(verdict.losses), markup=False)
    for label, names in (("A", verdict.unmatched_a), ("B", verdict.unmatched_b)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            console.print(f"only in {label}: {', '.join(names[:5])}{more}", markup=False)
    for note in verdict.notes if verdict.verdict != "incomparable" else ():
        console.print(f"note: {note}", style="dim", markup=False)
    for line in advice(verdict):
        console.print(line, markup=False)
    if verdict.then is not None:
        console.print()
        console.print("Once that is made equal, there is more:", style="bold")
        show_verdict(console, verdict.then, nested=True)


def _place(console: Console, first: Divergence) -> None:
    console.print(f"  {first.why}", markup=False)
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("site", Text(f"{first.site}  (B: {first.other_site})", style="cyan"))
    table.add_row("when", f"step {first.step}, {first.phase}")
    for label, source in (("A", first.source), ("B", first.other_source)):
        if source is not None:
            table.add_row(f"line {label}", Text(f"{source}    {source.code}"))
    for name, value in first.evidence.items():
        table.add_row(name, Text(_value(value)))
    console.print(table)


def _losses(losses: Mapping[str, Any]) -> str:
    if losses["within_1_permille"]:
        return f"losses: within 1 permille in all {losses['steps']} steps (largest difference {losses['max_rel']:.2g})"
    return (
        f"losses: more than 1 permille apart from step {losses['first_off_step']} on "
        f"(largest difference {losses['max_rel']:.2g} in {losses['steps']} steps)"
    )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(_value(entry) for entry in value)
    return str(value)
