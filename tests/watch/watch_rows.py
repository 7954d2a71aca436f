"""Digest rows for the tests of the watch layer, made by numpy from the definition in tensonde.digest.layout."""

from __future__ import annotations

import numpy as np

from tensonde.digest.layout import EXPONENT_BINS, EXPONENT_SAMPLE, ROW
from tensonde.model.moment import Phase


def row(values, site=0, step=0, call=0, phase=Phase.FORWARD):
    """The digest of `values` as one structured row."""
    x = np.asarray(values, dtype=np.float64).reshape(-1)
    out = np.zeros(1, ROW)
    finite = x[np.isfinite(x)]
    size = np.abs(finite)
    out["step"], out["site"], out["call"], out["phase"], out["count"] = step, site, call, phase, x.size
    out["nan"], out["pos_inf"], out["neg_inf"] = np.isnan(x).sum(), (x == np.inf).sum(), (x == -np.inf).sum()
    out["zero"], out["negative"] = (finite == 0).sum(), (finite < 0).sum()
    for name in ("min", "max", "mean", "std", "absmax", "absmean"):
        out[name] = np.nan
    if finite.size:
        out["min"], out["max"], out["mean"], out["std"] = (
            finite.min(),
            finite.max(),
            finite.mean(),
            finite.std(),
        )
        out["absmax"], out["absmean"] = size.max(), size.mean()
    scale = size.max() if finite.size and size.max() > 0 else 1.0
    out["norm"] = scale * np.sqrt(((size / scale) ** 2).sum())
    sample = x if x.size <= EXPONENT_SAMPLE else x[np.linspace(0, x.size - 1, EXPONENT_SAMPLE).astype(int)]
    kept = np.abs(sample[np.isfinite(sample) & (sample != 0)])
    bins = np.clip(np.floor((np.log2(kept) + 40) / 2), 0, EXPONENT_BINS - 1).astype(int)
    np.add.at(out["exponents"][0], bins, 1)
    return out


def rows(*many):
    return np.concatenate(many) if many else np.zeros(0, ROW)
