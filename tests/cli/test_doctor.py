"""`tensonde doctor` says what is there, what is missing, and what Tensonde replaces."""

from __future__ import annotations

import json
from pathlib import Path

from launch import cli, python

WITHOUT = """
from tensonde.adapters.torch import private
private.NAMES["torch._C._a_name_of_another_release"] = ("something", "no replay")
from tensonde.cli.main import main
main()
"""


def test_everything_is_there(tmp_path: Path) -> None:
    ran = cli("doctor", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.out
    told = json.loads(ran.out)
    assert told["problems"] == []
    assert "torch.nn.modules.module.Module.__call__" in told["frameworks"]["torch"]["replaced"]
    assert not (tmp_path / ".tensonde").exists(), "looking has left something behind"


def test_what_is_missing_is_said_with_what_follows(tmp_path: Path) -> None:
    (tmp_path / "without.py").write_text(WITHOUT)
    (tmp_path / ".tensonde").write_text("a file, not a folder")
    ran = python("without.py", "doctor", "--seams", cwd=tmp_path)
    assert ran.code == 1, ran.err
    assert "has no torch._C._a_name_of_another_release: no replay." in ran.out
    assert "Recordings cannot be written to .tensonde" in ran.out
    assert "see losses and backward passes" in ran.out
