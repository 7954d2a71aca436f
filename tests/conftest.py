"""What every test of Tensonde as a whole needs: a place to run scripts in, and a CPU that behaves."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator

# Kernels for AMX die of an illegal instruction on some virtual machines, with and without Tensonde.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# The compiler's headers are compiled once for all tests (and for all of xdist's processes, which inherit this).
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="tensonde-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)

import pytest

from launch import Foundry


@pytest.fixture(scope="session")
def foundry() -> Iterator[Foundry]:
    made = Foundry()
    yield made
    made.close()
