"""Every test that takes `make` runs against both implementations of the Block interface."""

from __future__ import annotations

import pytest

from tensonde.digest import _kernel, fallback


@pytest.fixture(params=["kernel", "fallback"])
def make(request):
    return _kernel.Block if request.param == "kernel" else fallback.Block


@pytest.fixture
def block(make):
    return make(8)
