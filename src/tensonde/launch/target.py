"""What is to be run: a script, a module (`-m`), or a launcher such as torchrun that will start scripts itself."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from pathlib import Path

from tensonde.errors import UsageError


def command_line(words: tuple[str, ...], python: str = "") -> tuple[list[str], str]:
    """The command to start, and the name of the script for the recording. Checks what can be checked before it starts.

    `python` is the interpreter, this one unless another is given."""
    python = python or sys.executable
    if not words:
        raise UsageError("no script was given; say e.g. `tensonde run train.py`.")
    first, rest = words[0], list(words[1:])
    if first == "-m":
        if not rest:
            raise UsageError("-m needs the name of a module; say e.g. `tensonde run -m package.train`.")
        return [python, "-m", *rest], rest[0]
    path = Path(first)
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{first} is a folder without a __main__.py; name the script in it.")
    if path.exists() and (path.suffix == ".py" or path.is_dir()):
        if path.is_file():
            check_syntax(path)
        return [python, first, *rest], first
    beside = shutil.which(first, path=os.path.dirname(python) + os.pathsep + os.environ.get("PATH", ""))
    if beside is not None and not first.endswith(".py"):
        scripts = [word for word in rest if word.endswith(".py")]
        return [beside, *rest], scripts[0] if scripts else first
    if path.is_file() and not first.endswith(
        ".py"
    ):  # a zipapp, or a script by another name: no program that the system would start
        return [python, first, *rest], first
    raise UsageError(f"there is no script {first!r} here{_nearest(path)}.")


def check_syntax(path: Path) -> None:
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as problem:
        raise UsageError(f"{path} has a syntax error in line {problem.lineno}: {problem.msg}.") from None
    except (ValueError, OSError) as problem:
        raise UsageError(f"{path} cannot be read as Python: {problem}.") from None


def _nearest(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".py"]
    except OSError:
        return f"; the folder {path.parent} does not exist"
    close = difflib.get_close_matches(path.name, names, 1)
    return f"; did you mean {path.parent / close[0]}?" if close else ""
