"""Numbers, shapes and digests as short text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensonde.debugger.terminal import Piece
from tensonde.digest.reference import digest_array
from tensonde.errors import UsageError
from tensonde.model.site import Site
from tensonde.session.inspector import Inspector, Value
from tensonde.session.session import Session


def short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def many(count: int) -> str:
    """1234567 as 1.23M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def kind_of(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def digest_of(value: Value) -> Any:
    """The digest of a value at hand, as one row."""
    return digest_array(value.array)[0]


def latest_row(session: Session, site: Site) -> Any | None:
    """The newest digest of a site that is still in memory."""
    rows = session.rows[: len(session.block)]
    found = np.flatnonzero(rows["site"] == site.id)
    return rows[found[-1]] if len(found) else None


def digest_at(inspector: Inspector, site: Site) -> Any | None:
    """The digest of what passes a site now: recorded, or else made from the value."""
    row = latest_row(inspector.session, site)
    if row is not None and int(row["count"]):
        return row
    try:
        return digest_of(inspector.value(site.address))
    except UsageError:
        return None


def digest_line(row: Any) -> list[Piece]:
    """One line of statistics, with what is not finite standing out."""
    pieces: list[Piece] = ["  ".join(f"{name} {short(float(row[name]))}" for name in ("min", "mean", "max", "norm"))]
    infinite = int(row["pos_inf"]) + int(row["neg_inf"])
    for name, count in (("nan", int(row["nan"])), ("inf", infinite)):
        pieces += [
            "  ",
            (f"{name} {count} of {int(row['count'])}" if count else f"{name} 0", "bad" if count else "dim"),
        ]
    return pieces
