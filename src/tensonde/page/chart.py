"""A curve over the steps as inline SVG, and a sparkline. What is not finite is a cross at the foot."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensonde.page.markup import number, tag, text

WIDTH, HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 54, 8, 8, 20
POINTS = 600
"""More than this many points are thinned to the extremes of each stretch."""

Series = Sequence[tuple[int, float]]


def chart(name: str, series: Series) -> str:
    thinned = thin(series, POINTS)
    finite = [value for _, value in thinned if math.isfinite(value)]
    bad = sum(1 for _, value in series if not math.isfinite(value))
    last = number(series[-1][1]) if series else "–"
    caption = tag("b", text(name)) + tag("span", text(last), class_="mono dim")
    if bad:
        caption += tag("span", f"{bad} not finite", class_="badge bad")
    return tag("figure", tag("figcaption", caption) + _plot(name, thinned, finite))


def _plot(name: str, series: Series, finite: list[float]) -> str:
    if not series:
        return tag("p", "no values", class_="dim")
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low == high:
        low, high = low - (abs(low) or 1) * 0.1, high + (abs(high) or 1) * 0.1
    first, last = series[0][0], max(series[-1][0], series[0][0] + 1)

    def x(step: float) -> float:
        return LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for share in (0, 0.5, 1):
        value = low + (high - low) * share
        parts.append(f'<path class="rule" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 5}" y="{y(value) + 3:.1f}" text-anchor="end">{text(number(float(f"{value:.3g}")))}</text>'
        )
    for step, anchor in ((first, "start"), ((first + last) // 2, "middle"), (last, "end")):
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{step}</text>')
    parts.append(f'<path class="line" d="{path(series, x, y)}"/>')
    parts += [
        f'<path class="cross" d="M{x(step) - 2.5:.1f} {HEIGHT - BOTTOM - 6}l5 5m0-5l-5 5"/>'
        for step, value in series if not math.isfinite(value)
    ]  # fmt: skip
    return tag("svg", "".join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{name} over the steps")


def path(series: Series, x: object, y: object) -> str:
    """SVG path data; the pen is lifted where a value is not finite."""
    assert callable(x)
    assert callable(y)
    out, down = [], False
    for step, value in series:
        if not math.isfinite(value):
            down = False
            continue
        out.append(f"{'L' if down else 'M'}{x(step):.1f} {y(value):.1f}")
        if not down:
            out.append("h.01")  # a single point shows, too
        down = True
    return "".join(out)


def sparkline(values: Sequence[float], width: int = 120, height: int = 18) -> str:
    finite = [value for value in values if math.isfinite(value)]
    if len(values) < 2 or not finite:
        return ""
    low, high = min(finite), max(finite)
    series = thin(list(enumerate(values)), width)
    line = path(
        series,
        lambda step: 1 + step / (len(values) - 1) * (width - 2),
        lambda value: height - 2 - ((value - low) / (high - low) if high > low else 0.5) * (height - 4),
    )
    return tag(
        "svg", f'<path class="line" d="{line}"/>', class_="spark", viewBox=f"0 0 {width} {height}", aria_hidden="true"
    )


def thin(series: Series, points: int) -> list[tuple[int, float]]:
    """At most about `points`: of every stretch the smallest, the largest and what is not finite."""
    if len(series) <= points:
        return list(series)
    out: list[tuple[int, float]] = []
    stretch = math.ceil(len(series) / (points / 2))
    for start in range(0, len(series), stretch):
        part = series[start : start + stretch]
        finite = [pair for pair in part if math.isfinite(pair[1])]
        kept = {min(finite, key=lambda pair: pair[1]), max(finite, key=lambda pair: pair[1])} if finite else set()
        odd = next((pair for pair in part if not math.isfinite(pair[1])), None)
        out += sorted([*kept, *([odd] if odd else [])], key=lambda pair: pair[0])
    return out
