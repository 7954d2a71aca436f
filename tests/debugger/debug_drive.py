"""Runs `tensonde debug` on a script with commands on standard input, as a user with a command file would."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from launch import skip_if_quick

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "examples" / "attention.py"
PROMPT = "(tensonde) "


@dataclass(frozen=True)
class Talk:
    """`answers[k]` is what was shown after the k-th command, up to the next prompt; `greeting` is before."""

    code: int
    out: str
    greeting: str
    answers: list[str]

    @property
    def shown(self) -> str:
        return self.greeting + "".join(self.answers)


def environment(**more: str) -> dict[str, str]:
    skip_if_quick()
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "TENSONDE_STRICT": "1", "NO_COLOR": "1", **more}


def debug(script: Path, commands: list[str], folder: Path, *options: str) -> Talk:
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "debug", *options, str(script)],
        input="\n".join(commands) + "\n",
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    greeting, *rest = done.stderr.split(PROMPT)
    return Talk(done.returncode, done.stdout, greeting, [part.partition("\n")[2] for part in rest])


def plain(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def line_of(script: Path, text: str) -> int:
    """The number of the only line that contains `text`."""
    found = [k for k, line in enumerate(script.read_text().splitlines(), 1) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]
