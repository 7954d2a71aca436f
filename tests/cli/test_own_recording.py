"""A recording that a script or a notebook begins itself is named after it, with its own arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launch import skip_if_quick

SCRIPT = """
import sys
if "notebook" in sys.argv:
    sys.modules["ipykernel"] = sys
import torch, tensonde
tensonde.attach(torch.nn.Linear(2, 1))
"""


@pytest.mark.parametrize(("argument", "said"), [("--lr", ("own.py", ["--lr"])), ("notebook", ("notebook", []))])
def test_its_name_and_arguments(tmp_path: Path, argument: str, said: tuple[str, list[str]]) -> None:
    skip_if_quick()
    (tmp_path / "own.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "own.py", argument], cwd=tmp_path, check=True, timeout=120)
    (manifest,) = tmp_path.glob(".tensonde/runs/*/run.json")
    found = json.loads(manifest.read_text())
    assert (found["script"], found["argv"]) == said
