"""What it means that two digests agree."""

from __future__ import annotations

import numpy as np

from tensonde.digest import ROW


def rows(block):
    return np.frombuffer(block, ROW)


COUNTS = ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "dtype")
EXACT = ("min", "max", "absmax")


def assert_same_digest(actual, expected):
    """Counts, extremes and the histogram exactly, sums within 1e-6 (the mean: of the mean magnitude; at the end of float64's
    range, either may have overflowed)."""
    for field in COUNTS + EXACT:
        np.testing.assert_equal(actual[field], expected[field], err_msg=field)
    np.testing.assert_array_equal(actual["exponents"], expected["exponents"])
    for field in ("std", "absmean", "norm"):
        a, b = (np.minimum(row[field], np.finfo(np.float64).max) for row in (actual, expected))
        np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=field)
    np.testing.assert_allclose(
        actual["mean"],
        expected["mean"],
        rtol=0,
        atol=1e-6 * np.nan_to_num(expected["absmean"]),
        err_msg="mean",
    )
