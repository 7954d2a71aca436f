"""The last row of each site."""

from __future__ import annotations

import numpy as np

from tensonde.digest.latest import last_rows


def test_sites_ascend_and_each_is_where_it_occurs_last() -> None:
    sites, rows = last_rows(np.array([3, 0, 3, 7, 0], np.int32))
    assert sites.tolist() == [0, 3, 7]
    assert rows.tolist() == [4, 2, 3]


def test_no_rows() -> None:
    sites, rows = last_rows(np.empty(0, np.int32))
    assert (len(sites), len(rows)) == (0, 0)
