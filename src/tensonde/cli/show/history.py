"""The page of `tensonde show RECORDING SITE`: its digests step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tensonde.cli.show.plot import number, plot, sparkline
from tensonde.cli.show.screen import table

NUMBERS = ("step", "call", "count", "nan", "inf", "zeros", "min", "max", "mean", "std", "norm")
PLOTS = 6
"""At most this many plots; the other sites are only named."""


def history(
    rows: list[dict[str, Any]], *, field: str, limit: int, plots: bool, width: int, problems: list[str]
) -> Iterator[RenderableType]:
    """A plot or a line of `field` for each site, then the table of the last `limit` digests (0: all)."""
    if not rows:
        yield Text("no digest of that site in those steps")
    series: dict[tuple[str, int], list[tuple[int, float | None]]] = {}
    for row in rows:
        series.setdefault((row["site"], row["rank"]), []).append((row["step"], row[field]))
    several = len({rank for _, rank in series}) > 1
    lines = []
    for (site, rank), points in list(series.items())[:PLOTS] if plots else series.items():
        title = f"{site} {field}" + (f" (rank {rank})" if several else "")
        steps, values = zip(*points, strict=True)
        if plots:
            yield Text(plot(steps, values, title=title, width=width) + "\n")
        else:
            lines.append((title, number(values[0]), number(values[-1]), sparkline(values)))
    if lines:
        yield table(("series", "first", "last", ""), lines, right=("first", "last"))
        yield Text()
    elif len(series) > PLOTS:
        yield Text(f"… and {len(series) - PLOTS} more sites; narrow the pattern to plot them\n", style="dim")
    if rows:
        shown = rows[-limit:] if limit else rows
        columns = ("step", "phase", "call", *(["rank"] if several else []), "site", *NUMBERS[2:])
        yield table(columns, [_cells(row, columns) for row in shown], right=NUMBERS)
        if len(shown) < len(rows):
            yield Text(f"the last {len(shown)} of {len(rows)}; --limit 0 shows all, --steps a part", style="dim")
    if problems:
        yield Text("\nDamage", style="bold red")
        yield from (Text(f"  {problem}") for problem in problems)


def _cells(row: dict[str, Any], columns: tuple[str, ...]) -> list[str | Text]:
    cells: list[str | Text] = []
    for name in columns:
        if name in ("nan", "inf"):
            bad = row["nan"] if name == "nan" else row["pos_inf"] + row["neg_inf"]
            cells.append(Text(str(bad), style="bold red" if bad else ""))
        elif name == "zeros":
            cells.append(f"{row['zero'] / row['count']:.1%}" if row["count"] else "–")
        elif isinstance(row[name], str):
            cells.append(row[name])
        else:
            cells.append(number(row[name]))
    return cells
