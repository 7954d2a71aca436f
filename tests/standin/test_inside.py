"""Runs the tests in `inside`, each file in a process of its own: there is a device there, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launch import environment

pytestmark = pytest.mark.usefixtures("standin")

HERE = Path(__file__).parent
FILES = sorted((HERE / "inside").glob("on_*.py"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_inside(file: Path) -> None:
    source = HERE.parent.parent / "src"
    path = f"{source}:{HERE}:{HERE.parent}:{HERE.parent / 'digest'}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", str(file)],
        env=environment({"PYTHONPATH": path}), capture_output=True, text=True, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
