"""Running training scripts, bare and under Tensonde, the way the tests need it: often, and as real processes.

`cli` is `python -m tensonde ...` itself. Importing torch takes seconds, though, and some hundred runs are
wanted, so `Foundry` keeps one process that has imported torch and nothing else has happened in, and forks
it for each run. The fork does what a process of `tensonde run` does from there: the start-up code reads the
options from the environment, Tensonde is let into torch, the script runs as `__main__`, the interpreter ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tensonde.launch.dumping import dump_of
from tensonde.session.options import Options
from tensonde.store.claim import create_run
from tensonde.store.reader import Rank, Recording

SOURCE = Path(__file__).resolve().parent.parent / "src"
LONGEST = 90
QUICK = "TENSONDE_TEST_QUICK"
"""Set by `pytest --quick`."""


@dataclass(frozen=True)
class Ran:
    """What a script that ran left behind; `folder` is its recording (None: it ran bare)."""

    code: int
    out: str
    err: str
    cwd: Path
    folder: Path | None = None

    @cached_property
    def recording(self) -> Recording:
        assert self.folder is not None
        return Recording.open(self.folder)

    @cached_property
    def rank(self) -> Rank:
        (only,) = self.recording.ranks
        return only

    @cached_property
    def addresses(self) -> set[str]:
        return {site.address for site in self.rank.sites.values()}

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Every digest, with its site's address."""
        names = {number: site.address for number, site in self.rank.sites.items()}
        return [{**row, "address": names[row["site"]]} for row in self.rank.digests().to_pylist()]

    def at(self, address: str, **fields: Any) -> list[dict[str, Any]]:
        """The digests of one site, in order, those with the given fields."""
        return [
            row
            for row in self.rows
            if row["address"] == address and all(row[name] == value for name, value in fields.items())
        ]

    def norms(self, address: str) -> list[float]:
        return [row["norm"] for row in self.at(address)]

    def scalars(self, name: str) -> list[tuple[int, float]]:
        return [(row["step"], row["value"]) for row in self.rank.scalars(name).to_pylist()]

    @property
    def session(self) -> dict[str, Any]:
        return self.rank.session

    @cached_property
    def result(self) -> Any:
        """What the script wrote to the file named by RESULT."""
        return json.loads((self.cwd / "result.json").read_text())


def skip_if_quick() -> None:
    """For whatever starts a process, which may train."""
    if os.environ.get(QUICK):
        import pytest

        pytest.skip("--quick starts no process that may train")


def environment(extra: Mapping[str, str | None] | None = None, *, strict: bool = True) -> dict[str, str]:
    """For a child process; a value of None takes a variable away."""
    skip_if_quick()
    found = {name: value for name, value in os.environ.items() if not name.startswith("TENSONDE_")}
    found["PYTHONPATH"] = str(SOURCE)
    found["PYTHONDONTWRITEBYTECODE"] = "1"
    found["OMP_WAIT_POLICY"] = "passive"  # threads that spin starve the other test processes
    if strict:
        found["TENSONDE_STRICT"] = "1"
    for name, value in (extra or {}).items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


def cli(
    *words: str | Path,
    cwd: Path,
    stdin: str = "",
    env: Mapping[str, str | None] | None = None,
    strict: bool = True,
    folder: Path | None = None,
) -> Ran:
    """`tensonde WORDS...` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", *map(str, words)],
        cwd=cwd, env=environment({"RESULT": str(cwd / "result.json"), **(env or {})}, strict=strict),
        input=stdin, capture_output=True, text=True, timeout=LONGEST,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr, cwd, folder)


def python(*words: str | Path, cwd: Path, stdin: str = "", env: Mapping[str, str | None] | None = None) -> Ran:
    """`python WORDS...`, without Tensonde."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd, env=environment({"RESULT": str(cwd / "result.json"), **(env or {})}),
        input=stdin, capture_output=True, text=True, timeout=LONGEST,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr, cwd)


class Foundry:
    """One per test process. `bare` and `watched` block until the script has ended."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    def close(self) -> None:
        self._server.communicate(timeout=10)

    def bare(
        self, script: str | Path, cwd: Path, *, argv: Sequence[str] = (), env: Mapping[str, str | None] | None = None
    ) -> Ran:
        return self._run(script, cwd, argv, env or {}, None, strict=True)

    def watched(
        self,
        script: str | Path,
        cwd: Path,
        *,
        argv: Sequence[str] = (),
        watch: Sequence[tuple[str, str]] = (),
        on_hit: str = "report",
        budget: float | None = None,
        steps: int | None = None,
        recommended: bool = True,
        strict: bool = True,
        env: Mapping[str, str | None] | None = None,
        record: Path | None = None,
        debug: bool = False,
        stdin: str = "",
        dump: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Ran:
        """`dump` is what stands in a dump configuration, without its path, which is `cwd/dump`."""
        folder = create_run(record or cwd, None, {"script": "script.py", "argv": []})
        options = Options(
            run=str(folder),
            watches=tuple((sites, condition, on_hit) for sites, condition in watch),  # type: ignore[misc]
            on_hit=on_hit,  # type: ignore[arg-type]
            budget=budget,
            steps=steps,
            recommended=recommended,
            debug=debug,
            **more,
            dump=_dump(dump, cwd) if dump is not None else None,
        )
        (cwd / "stdin").write_text(stdin)
        return self._run(script, cwd, argv, {**options.to_environment(), **(env or {})}, folder, strict=strict)

    def ran(self, script: Path, cwd: Path, options: Options, folder: Path, *, argv: Sequence[str] = ()) -> Ran:
        """With options of any kind."""
        (cwd / "stdin").write_text("")
        return self._run(script, cwd, argv, options.to_environment(), folder, strict=True)

    def _run(
        self,
        script: str | Path,
        cwd: Path,
        argv: Sequence[str],
        env: Mapping[str, str | None],
        folder: Path | None,
        *,
        strict: bool,
    ) -> Ran:
        if isinstance(script, str):
            text, script = script, cwd / "script.py"
            script.write_text(textwrap.dedent(text))
        variables = environment({"RESULT": str(cwd / "result.json"), **env}, strict=strict)
        job = {"script": str(script), "argv": list(argv), "cwd": str(cwd), "env": variables}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the process that runs scripts has died"
        code = int(answer)
        out, err = (cwd / "stdout").read_text(), (cwd / "stderr").read_text()
        return Ran(code, out, err, cwd, folder)


def _dump(content: Mapping[str, Any], cwd: Path) -> dict[str, Any] | None:
    common = {"path": str(cwd / "dump"), **content.get("common_dump_settings", {})}
    (cwd / "dump.json").write_text(json.dumps({**content, "common_dump_settings": common}))
    return dump_of((), None, cwd / "dump.json", cwd)


def _serve() -> str | None:
    """Forks for every job; comes back in the child with the script to run, in the parent at the end of the jobs."""
    if importlib.util.find_spec("torch"):
        for name in ("torch", "torch._dynamo", "torch.func", "torch.utils.checkpoint", "torch.utils.data"):
            importlib.import_module(name)
    elif importlib.util.find_spec("mindspore"):
        importlib.import_module("mindspore")
    gc.freeze()  # the collection at the end of each fork need not walk all of torch
    jobs, answers = os.dup(0), os.dup(1)
    os.set_inheritable(jobs, False)
    for line in os.fdopen(jobs, closefd=False):
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            os.close(jobs)
            return _become(job)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os.write(answers, f"{code if code >= 0 else 128 - code}\n".encode())
    return None


def _become(job: dict[str, Any]) -> str:
    signal.alarm(int(job["env"].get("TEST_SECONDS", LONGEST)))
    os.chdir(job["cwd"])
    for number, name in enumerate(["stdin", "stdout", "stderr"]):
        # Appended: ranks share the file, and one must not write over the line of another.
        flags = os.O_WRONLY | os.O_TRUNC | os.O_APPEND if number else os.O_RDONLY
        target = os.open(name, flags | os.O_CREAT)
        os.dup2(target, number)
        os.close(target)
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv[:] = [job["script"], *job["argv"]]
    sys.path[0] = os.path.dirname(job["script"])
    return str(job["script"])


def _main(script: str) -> None:
    """Runs the script as the interpreter would, and ends without taking all of torch apart, which takes long."""
    import runpy

    from tensonde.launch.child import start

    start()
    code: Any = 0
    try:
        _left = runpy.run_path(script, run_name="__main__")  # what the script has made lives on, as in `__main__`
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _script = _serve()
    if _script is not None:
        _main(_script)
