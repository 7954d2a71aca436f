"""Histograms for the terminal: of values, in even bins, and of magnitudes, in decades."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tensonde.debugger.numbers import short
from tensonde.debugger.terminal import Piece

BINS = 16
MOST_DECADES = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"

Array = np.ndarray[Any, Any]


def histogram(values: Array, width: int, bins: int = BINS) -> list[list[Piece]]:
    finite = values[np.isfinite(values)]
    lines: list[list[Piece]] = []
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
        if low == high:
            lines += bars([f"{short(low)}"], np.array([finite.size]), width)
        else:
            scale = max(abs(low), abs(high))  # so that the bins of huge values do not overflow
            counts, edges = np.histogram(finite / scale, bins=bins, range=(low / scale, high / scale))
            labels = [f"{short(a * scale)} … {short(b * scale)}" for a, b in pairwise(edges)]
            lines += bars(labels, counts, width)
    return lines + apart(values)


def magnitudes(values: Array, width: int) -> list[list[Piece]]:
    """Bins are powers of ten; zeros are counted apart."""
    sizes = np.abs(values[np.isfinite(values)])
    zeros, sizes = int(np.count_nonzero(sizes == 0)), sizes[sizes > 0]
    lines: list[list[Piece]] = []
    if sizes.size:
        decades = np.floor(np.log10(sizes)).astype(int)
        last = int(decades.max())
        first = max(int(decades.min()), last - MOST_DECADES + 1)
        counts = np.bincount(np.clip(decades, first, last) - first, minlength=last - first + 1)
        labels = [f"1e{k:+03d} … 1e{k + 1:+03d}" for k in range(first, last + 1)]
        if int(decades.min()) < first:
            labels[0] = f"below 1e{first + 1:+03d}"
        lines += bars(labels, counts, width)
    if zeros:
        lines.append([f"zero: {zeros} of {values.size}"])
    return lines


def bars(labels: list[str], counts: Array, width: int) -> list[list[Piece]]:
    room, most = max(map(len, labels)), int(counts.max())
    lines: list[list[Piece]] = []
    for label, count in zip(labels, counts.tolist(), strict=True):
        eighths = round(count / most * width * 8)
        if count and not eighths:
            eighths = 1
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        lines.append([f"{label:>{room}} ", (bar, "site"), f" {count}" if count else ""])
    return lines


def apart(values: Array) -> list[list[Piece]]:
    """What has no place on the axis."""
    counts = {"nan": np.isnan(values), "+inf": values == np.inf, "-inf": values == -np.inf}
    return [[(f"{name}: {int(m.sum())} of {values.size}", "bad")] for name, m in counts.items() if m.any()]
