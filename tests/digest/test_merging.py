"""Digests of parts merge to the digest of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensonde.digest.layout import COUNTS, ROW, STATS
from tensonde.digest.merging import merged
from tensonde.digest.reference import digest_array

NUMBERS = st.floats(width=32, allow_subnormal=False, min_value=-(2.0**60), max_value=2.0**60) | st.sampled_from(
    [0.0, -0.0, np.nan, np.inf, -np.inf]
)


def whole(parts: list[np.ndarray]) -> np.ndarray:
    rows = np.zeros((len(parts), 1), ROW)
    for k, part in enumerate(parts):
        rows[k] = digest_array(part)
    return merged(rows)[0]


@settings(deadline=None)
@given(st.lists(st.lists(NUMBERS, max_size=12), min_size=1, max_size=4))
def test_every_field_is_that_of_the_whole(parts: list[list[float]]) -> None:
    arrays = [np.array(part, np.float32) for part in parts]
    together = np.concatenate(arrays)
    found, expected = whole(arrays), digest_array(together)[0]
    size = float(np.abs(together[np.isfinite(together)]).max(initial=0.0))
    for name in COUNTS:
        assert found[name] == expected[name], name
    for name in STATS:
        exact = name in ("min", "max", "absmax")
        assert found[name] == pytest.approx(expected[name], rel=1e-6, abs=0 if exact else 1e-6 * size, nan_ok=True), (
            name
        )


def test_a_shard_without_elements_counts_for_nothing() -> None:
    found = whole([np.array([1.0, -3.0], np.float32), np.array([], np.float32)])
    assert (found["count"], found["min"], found["max"], found["mean"], found["std"]) == (2, -3.0, 1.0, -1.0, 2.0)
