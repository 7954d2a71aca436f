"""What every test of Sonde as a whole needs: a place to run scripts in, and a CPU that behaves."""

from __future__ import annotations

import os
from collections.abc import Iterator

# Kernels for AMX die of an illegal instruction on some virtual machines, with and without Sonde.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest

from launch import Foundry


@pytest.fixture(scope="session")
def foundry() -> Iterator[Foundry]:
    made = Foundry()
    yield made
    made.close()
