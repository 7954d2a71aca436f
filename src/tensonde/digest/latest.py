"""The last row of each site."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def last_rows(sites: Array) -> tuple[Array, Array]:
    """The sites in ascending order, and where each occurs last in `sites`."""
    last = np.full(int(sites.max(initial=-1)) + 1, -1, np.int64)
    last[sites] = np.arange(len(sites))
    present = np.flatnonzero(last >= 0)
    return present, last[present]
