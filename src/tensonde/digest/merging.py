"""The digest of a tensor from the digests of its parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import COUNTS, ROW


def merged(rows: NDArray[np.void]) -> NDArray[np.void]:
    """For rows by part and place: the digest of the whole at each place.

    Every field is that of the whole, up to rounding, but `exponents`: it is a sample of each part, so that the sum is a sample of the whole,
    and not the one that its own digest would have taken.
    """
    found = np.zeros(rows.shape[1], ROW)
    for name in ("step", "site", "call", "phase", "dtype"):
        found[name] = rows[0][name]
    found["flags"] = np.bitwise_or.reduce(rows["flags"], axis=0)
    for name in COUNTS:
        found[name] = rows[name].sum(axis=0)
    found["min"] = np.fmin.reduce(rows["min"], axis=0)
    found["max"] = np.fmax.reduce(rows["max"], axis=0)
    found["absmax"] = np.fmax.reduce(rows["absmax"], axis=0)
    found["norm"] = np.hypot.reduce(rows["norm"], axis=0)
    finite = (rows["count"] - rows["nan"] - rows["pos_inf"] - rows["neg_inf"]).astype(np.float64)
    with np.errstate(all="ignore"):
        share = finite / finite.sum(axis=0)
        for name in ("mean", "absmean"):
            found[name] = np.where(finite > 0, share * rows[name], 0.0).sum(axis=0)
        apart = rows["std"] ** 2 + (rows["mean"] - found["mean"]) ** 2
        found["std"] = np.sqrt(np.where(finite > 0, share * apart, 0.0).sum(axis=0))
    for name in ("mean", "absmean", "std"):
        found[name][finite.sum(axis=0) == 0] = np.nan
    found["exponents"] = np.minimum(rows["exponents"].astype(np.int64).sum(axis=0), np.iinfo(np.uint16).max)
    return found
