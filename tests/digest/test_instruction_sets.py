"""The statistics hold on every instruction set of this machine, and agree between them bit by bit."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tensonde.digest import _kernel

HERE = pathlib.Path(__file__).parent
OTHERS = [name for name in ("baseline", "avx2", "avx512") if _kernel.isa() in ("baseline", "avx2", "avx512")]

PRINT_ROWS = """
import sys, numpy as np
from tensonde.digest import _kernel
rng = np.random.default_rng(3)
for dtype in sys.argv[1].split(","):
    for size in (5, 16, 70, 1000, 5000, 200_001):
        for offset in (0, 5):
            block = _kernel.Block(1)
            block.add(0, (rng.standard_normal(size) * 30 + offset).astype(dtype))
            print(bytes(block).hex())
print(_kernel.isa(), file=sys.stderr)
"""


def run(isa, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "TENSONDE_ISA": isa},
        capture_output=True,
        text=True,
        timeout=170,
    )


@pytest.mark.slow
@pytest.mark.parametrize("isa", [name for name in OTHERS if name != _kernel.isa()])
def test_statistics(isa):
    outcome = run(isa, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(HERE / "test_digest_statistics.py"))
    assert outcome.returncode == 0, outcome.stdout[-3000:]


def test_same_bits():
    """FMA changes the last bits of squares of floats on the baseline; all else is equal everywhere."""
    found = {}
    for isa in OTHERS:
        for dtypes in ("float64,int32", "float32,float16"):
            outcome = run(isa, "-c", PRINT_ROWS, dtypes)
            found[dtypes, outcome.stderr.strip()] = outcome.stdout
    doubles = {rows for (dtypes, _), rows in found.items() if dtypes == "float64,int32"}
    floats = {rows for (dtypes, isa), rows in found.items() if dtypes != "float64,int32" and isa != "baseline"}
    assert len(doubles) == 1
    assert len(floats) <= 1
