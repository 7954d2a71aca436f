"""The session in docs/debugger.md is what really happens: it is run again; only numbers may differ."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from debug_drive import ATTENTION, ROOT, environment

GUIDE = ROOT / "docs" / "debugger.md"
COMMAND = "$ tensonde debug examples/attention.py\n"
_NUMBER = re.compile(r"-?\d+\.?\d*(e[-+]\d+)?")


def session(commands: list[str], folder: Path) -> str:
    """What is shown, without what the supervisor says at the end."""
    shutil.copytree(ATTENTION.parent, folder / "examples")
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "debug", "examples/attention.py"], input="\n".join(commands) + "\n",
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    text, quit, _ = done.stderr.replace(f"{folder}/", "").rpartition("(tensonde) quit")
    lines = (text + quit).splitlines()
    return "\n".join(line.rstrip() for line in lines if not line.startswith("tensonde: "))


def shape(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", _NUMBER.sub("0", line)).strip() for line in text.splitlines() if line.strip()]


def test_the_session_in_the_guide_is_real(tmp_path: Path) -> None:
    block = GUIDE.read_text().partition(COMMAND)[2].partition("\n```")[0]
    commands = re.findall(r"^\((?:tensonde|Pdb)\) (.*)$", block, re.M)
    assert len(commands) > 10
    assert shape(session(commands, tmp_path)) == shape(block)


def test_the_command_file_in_the_guide_works(tmp_path: Path) -> None:
    (line,) = re.findall(r"^printf .*$", GUIDE.read_text(), re.M)
    shutil.copytree(ATTENTION.parent, tmp_path / "examples")
    done = subprocess.run(
        line.replace("| tensonde", f"| {sys.executable} -m tensonde"), shell=True,
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0
    assert "(tensonde) stats\nhead:grad  float32[2,3]\n  count     6\n" in done.stderr
