"""HTML by the piece. Everything that comes from a recording is text and is escaped here, once."""

from __future__ import annotations

import math
from html import escape
from typing import Any

MARKS = {"ok": "●", "warn": "▲", "bad": "✕", "none": "○"}


def text(value: Any) -> str:
    return escape("" if value is None else str(value), quote=True)


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """`content` is markup already; attributes are escaped. `class_` is class, and `aria_label` aria-label."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def mark(status: str) -> str:
    """A status by shape and colour."""
    return tag("span", MARKS[status], class_=f"mark {status}", title=status)


def number(value: Any) -> str:
    """Four digits, and NaN and Inf by name."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "−Inf"
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{int(value)}"
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-").replace("-", "−", 1 if value < 0 else 0)


def table(head: list[str], rows: list[list[str]], class_: str = "") -> str:
    """Cells are markup already."""
    top = tag("thead", tag("tr", "".join(tag("th", text(name)) for name in head)))
    body = "".join(tag("tr", "".join(tag("td", cell) for cell in row)) for row in rows)
    return tag("table", top + tag("tbody", body), class_=class_ or None)
