"""Generated programs keep all their state under Tensonde, replays included (docs/adr/0007).

By hand: `python tests/identity/run_programs.py FIRST COUNT` in an empty folder, with `src` and this folder on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch import environment

HERE = Path(__file__).parent


def ran(folder: Path, first: int, count: int, *only: str) -> dict[str, Any]:
    variables = environment({"OMP_NUM_THREADS": "1"})
    variables["PYTHONPATH"] += os.pathsep + str(HERE)
    words = [sys.executable, HERE / "run_programs.py", str(first), str(count), *only]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("first", [0, 50])
def test_generated_programs_are_bit_identical(first: int, tmp_path: Path) -> None:
    found = ran(tmp_path, first, 50)
    assert found["failed"] == []
    tally = found["tally"]
    assert tally["programs"] == 50
    assert tally["programs that fail"] < 5
    assert tally["programs with a replay"] > 20  # or nothing was tried
    assert tally["exact"] > tally["replays"] / 3
    assert tally["unrestored"] == 0


@pytest.mark.parametrize(
    ("kind", "why"), [("appended file", "writes to a file"), ("environment", "changes the environment")]
)
def test_what_cannot_be_undone_ends_the_second_run_before_it_is_done(kind: str, why: str, tmp_path: Path) -> None:
    found = ran(tmp_path, 0, 6, kind)
    assert found["failed"] == []
    assert found["tally"]["replays"] > 0
    assert found["tally"]["exact"] == found["tally"]["unrestored"] == 0
    assert any(why in reason for reason in found["reasons"])


@pytest.mark.parametrize(
    "kind",
    ["global by its name", "library's attribute", "queue", "thread's own", "context", "ctypes", "array", "sparse"],
)
def test_state_in_odd_places_is_put_back(kind: str, tmp_path: Path) -> None:
    found = ran(tmp_path, 0, 6, kind)
    assert found["failed"] == []
    assert found["tally"]["replays"] > 2


@pytest.mark.parametrize("kind", ["resized", "resized storage", "swapped"])
def test_tensors_can_be_resized_and_swapped_as_before(kind: str, tmp_path: Path) -> None:
    """Both are refused by torch where somebody holds the memory in an array, or a weak reference to the tensor."""
    found = ran(tmp_path, 0, 6, kind)
    assert found["failed"] == []
    assert found["tally"]["programs that fail"] == 0
    assert found["tally"]["replays"] > 2


@pytest.mark.parametrize("kind", ["iterator", "cycle", "generator", "file"])
def test_what_cannot_be_set_back_is_not_run_again(kind: str, tmp_path: Path) -> None:
    found = ran(tmp_path, 0, 6, kind)
    assert found["failed"] == []
    assert found["tally"]["replays"] == 0
    assert found["tally"]["declined"] > 0
    assert all("that Net holds cannot be" in why for why in found["reasons"] if "recorded" not in why)
