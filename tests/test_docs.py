"""Every command block in the documentation runs, in a folder with the examples and a recording named demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


NEEDS = re.compile(r"^# needs: (\w+)$", re.MULTILINE)
"""In a block: a package of the dependency group companions, without which the block is passed over."""


def blocks(page: Path) -> list[tuple[str, str]]:
    return [
        (language, text)
        for language, text in BLOCK.findall(page.read_text())
        if all(find_spec(name) for name in NEEDS.findall(text))
    ]


def pages() -> list[Any]:
    with_blocks = [page for page in PAGES if BLOCK.search(page.read_text())]
    marks = {page: [pytest.mark.companions] if NEEDS.search(page.read_text()) else [] for page in with_blocks}
    return [pytest.param(page, id=page.stem, marks=marks[page]) for page in with_blocks]


@pytest.mark.parametrize("page", pages())
@pytest.mark.timeout(300)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "corpus").symlink_to(ROOT / "corpus")
    shutil.copytree(ROOT / "tests" / "golden" / "v1", tmp_path / ".tensonde" / "runs" / "demo")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENSONDE")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    for language, text in blocks(page):
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr or text.endswith("|| true\n"), f"{text}\n{done.stderr}"


QUOTED = re.compile(r"^error: (.*?)  \(step \d+.*\)\n    corpus/bugs/(\w+)/train.py:(\d+)$", re.MULTILINE)


@pytest.mark.parametrize(("title", "script", "line"), QUOTED.findall((ROOT / "docs" / "culprits.md").read_text()))
def test_the_culprits_are_what_tensonde_says(title: str, script: str, line: str, tmp_path: Path) -> None:
    """But for the step, which rounding decides."""
    path = ROOT / "corpus" / "bugs" / script / "train.py"
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "run", "--record", "out", str(path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert f"error: {title}" in done.stderr
    assert f"train.py:{line}\n" in done.stderr


def test_the_tour_shows_what_tensonde_says(tmp_path: Path) -> None:
    """The line quoted in the tour and in the README is what the demo prints, but for the step, which rounding decides."""
    quoted = re.search(r"^error: (.*)  \(step \d+, forward\)$", (ROOT / "docs" / "tour.md").read_text(), re.MULTILINE)
    assert quoted is not None
    assert quoted.group(1) in (ROOT / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "run", "--record", "out", str(ROOT / "examples" / "focal_loss.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert quoted.group(1) in done.stderr
