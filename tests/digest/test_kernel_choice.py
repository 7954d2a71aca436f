"""Which implementation is chosen, and what is said about it."""

from __future__ import annotations

import os
import subprocess
import sys

from tensonde.digest import _kernel, kernel_name

PROGRAM = """
import logging; logging.basicConfig()
import numpy as np, tensonde.digest
block = tensonde.digest.Block(2)
block.add(1, np.ones(4))
print(tensonde.digest.kernel_name(), tensonde.digest.rows_of(block)["norm"][0])
"""


def run(**environment):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_kernel_is_used():
    assert kernel_name() == _kernel.isa()
    outcome = run(TENSONDE_ISA="baseline")
    assert outcome.stdout.split() == [outcome.stdout.split()[0], "2.0"]
    assert outcome.stderr == ""


def test_numpy_instead_is_announced():
    outcome = run(TENSONDE_KERNEL="off")
    assert outcome.stdout.split() == ["numpy", "2.0"]
    assert outcome.stderr.count("WARNING:tensonde.digest:") == 1
    assert "TENSONDE_KERNEL=off" in outcome.stderr
