"""Numbers drawn in text: a line of blocks, or a plot in braille dots. No colours, so that it survives any
terminal.

Drawn here because plotext's functions changed names between its releases, and this much needs no library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each of the eight dots of a braille character, by row and column."""


def number(value: float | None) -> str:
    """Short enough for a table: four digits, NaN and infinities as words."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """One line of blocks; `!` stands where a value is not finite. Longer series are thinned, keeping what is
    not."""
    cells = _thin(values, width)
    finite = [cell for cell in cells if cell is not None and math.isfinite(cell)]
    if not finite:
        return "!" * len(cells)
    low, high = min(finite), max(finite)
    top = len(BLOCKS) - 1 if high > low else 0
    return "".join(
        BLOCKS[round(_share(cell, low, high) * top)] if cell is not None and math.isfinite(cell) else "!"
        for cell in cells
    )


def plot(
    steps: Sequence[float], values: Sequence[float | None], *, title: str, width: int = 72, height: int = 10
) -> str:
    """A plot of `values` over `steps`. Columns where a value is not finite are marked `!` below the plot."""
    pairs = list(zip(steps, values, strict=True))
    finite = [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]
    if not finite:
        return f"{title}: no finite value in {len(pairs)} steps"
    left, right = min(steps), max(steps)
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    across, down = width * 2 - 1, height * 4 - 1
    grid = [[0] * width for _ in range(height)]
    last: tuple[int, int] | None = None
    for step, value in finite:
        x = round(_share(step, left, right) * across)
        y = down - round(_share(value, low, high) * down)
        for px, py in _line(last, (x, y)):
            grid[py // 4][px // 2] |= DOTS[py % 4][px % 2]
        last = (x, y)
    marks = [" "] * width
    for step, missing in pairs:
        if missing is None or not math.isfinite(missing):
            marks[round(_share(step, left, right) * across) // 2] = "!"
    labels = {0: number(high), height - 1: number(low)}
    margin = max(map(len, labels.values()))
    lines = [title]
    for row, cells in enumerate(grid):
        text = "".join(chr(0x2800 + cell) for cell in cells)
        lines.append(f"{labels.get(row, ''):>{margin}} │{text}")
    if "!" in marks:
        lines.append(f"{'':>{margin}} │{''.join(marks).rstrip()}  ! not finite")
    axis = f"{number(left)}{number(right):>{max(width - len(number(left)), 1)}}"
    return "\n".join([*lines, f"{'':>{margin}}  {axis}"])


def _share(value: float, low: float, high: float) -> float:
    # Halved first: the span of two large numbers may not be finite.
    span = high / 2 - low / 2
    return (value / 2 - low / 2) / span if span > 0 else 0.5


def _line(start: tuple[int, int] | None, end: tuple[int, int]) -> list[tuple[int, int]]:
    if start is None:
        return [end]
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (start[0] + round((end[0] - start[0]) * i / count), start[1] + round((end[1] - start[1]) * i / count))
        for i in range(count + 1)
    ]


def _thin(values: Sequence[float | None], width: int) -> list[float | None]:
    if len(values) <= width:
        return list(values)
    cells: list[float | None] = []
    for index in range(width):
        part = values[index * len(values) // width : (index + 1) * len(values) // width]
        bad = [value for value in part if value is None or not math.isfinite(value)]
        cells.append(bad[0] if bad else part[-1])
    return cells
