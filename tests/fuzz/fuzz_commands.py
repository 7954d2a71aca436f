"""Running reading commands in this process, and what may come of them: success, or one sentence and exit code 2."""

from __future__ import annotations

import io
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

LONGEST = 20

RUN_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "{}"), ("show", "{}", "--json"), ("show", "{}", "**:out", "--plot"), ("show", "{}", "--graphs"), ("show", "{}", "--html", "-"),
    ("query", "{}", "select * from digests join sites using (site)", "--json"), ("query", "{}", "select * from hits", "--csv"),
    ("query", "{}", "select * from events union all by name select * from findings"), ("query", "{}", "select * from scalars"),
    ("diagnose", "{}"), ("diagnose", "{}", "--json"), ("export", "{}", "{out}"), ("export", "{}", "{out}/t", "--to", "parquet"),
    ("export", "{}", "{out}.csv", "--what", "digests"), ("compare", "{}", "{whole}"), ("compare", "{whole}", "{}", "--json"),
    ("compare", "{}", "{}", "--html", "{out}.html"), ("ckpt", "{}"), ("convert", "{}", "{out}.npz"), ("replay", "{}", "--factory", "none.such:it"),
)  # fmt: skip
FILE_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("ckpt", "{}"), ("ckpt", "{}", "--json"), ("ckpt", "{}", "{whole}"), ("ckpt", "{whole}", "{}", "--json"), ("compare", "{}", "{whole}"),
    ("compare", "{whole}", "{}", "--json"), ("convert", "{}", "{out}.npz"), ("convert", "{}", "{out}.safetensors"), ("convert", "{}", "{out}"),
    ("convert", "{}", "{out}.parquet"), ("convert", "{}", "{out}", "--to", "dump"),
)  # fmt: skip


class Failed(BaseException):
    pass


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def late(number: int, frame: Any) -> None:
        raise Failed(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(words: list[str]) -> tuple[int, str]:
    """`tensonde WORDS`: its exit code, and what it said on stderr. Raises Failed for anything but an answer or a refusal."""
    from tensonde.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    before, sys.argv = sys.argv, ["tensonde", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(), no_longer_than(LONGEST):
            warnings.simplefilter("error")
            try:
                main()
            except SystemExit as end:
                code = end.code
    except Failed:
        raise
    except BaseException as problem:
        raise Failed(f"{type(problem).__name__}: {problem}\n{traceback.format_exc()}") from None
    finally:
        sys.argv = before
    said = err.getvalue()
    if code in (0, None):
        return 0, said
    sentences = [line for line in said.splitlines() if line.startswith(("tensonde:", "Error:"))]
    if code == 1 and words[0] in ("diagnose", "compare", "ckpt", "replay"):
        return 1, said
    if code != 2 or not (sentences or out.getvalue().strip()) or "Traceback" in said:
        raise Failed(f"exit code {code} with {said!r}")
    if len(said) > 4000:
        raise Failed(f"a sentence of {len(said)} characters: {said[:300]}")
    return 2, said


def fill(command: tuple[str, ...], given: Path, whole: Path, out: Path) -> list[str]:
    shutil.rmtree(out.parent, ignore_errors=True)
    out.parent.mkdir()
    return [word.format(given, whole=whole, out=out) if word != "{}" else str(given) for word in command]
