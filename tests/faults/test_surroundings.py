"""What programs and their surroundings do to themselves: each keeps the exit code, the output and the weights that it has without Tensonde.

Every case is a small training with a few lines at its beginning and a few in its sixth step. It runs bare and under Tensonde.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch import Foundry, Ran, cli, environment, python
from tensonde.cli.show.outcome import finish
from tensonde.diagnose.diagnose import diagnose

PROGRAM = """
import ctypes, faulthandler, hashlib, os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)  # threads of OpenMP do not outlive a fork

def weights(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()

def train(steps, amid=lambda step: None):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        if step == 5:
            print(weights(model), flush=True)
            amid(step)
        loss = model(torch.randn(4, 4)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(weights(model), flush=True)

{before}

def amid(step):
{amid}

if __name__ == "__main__":
{main}
"""


@dataclass(frozen=True)
class Case:
    """`says` is what Tensonde says in its summary; `line` is the code of the line that it names."""

    amid: str = "pass"
    before: str = ""
    main: str = "train(12, amid)"
    says: str = "12 steps watched"
    line: str = ""
    nested: bool = False
    """The program makes processes that train."""

    @property
    def program(self) -> str:
        def indented(text: str) -> str:
            return textwrap.indent(textwrap.dedent(text).strip(), "    ")

        before = textwrap.dedent(self.before)
        return PROGRAM.format(before=before, amid=indented(self.amid), main=indented(self.main))


CASES = {
    "abort": Case("os.abort()", says="SIGABRT (aborted) ended the program  (step 5)", line="os.abort()"),
    "segmentation fault": Case("ctypes.string_at(0)", says="SIGSEGV (segmentation fault) ended the program  (step 5)", line="ctypes.string_at(0)"),
    "segmentation fault, faulthandler on": Case("ctypes.string_at(0)", "faulthandler.enable()", says="SIGSEGV (segmentation fault) ended the program  (step 5)"),
    "faulthandler switched on and off": Case(
        """
        print(faulthandler.is_enabled(), faulthandler.disable(), faulthandler.is_enabled())
        faulthandler.enable()
        print(faulthandler.is_enabled(), faulthandler.disable(), faulthandler.is_enabled(), flush=True)
        ctypes.string_at(0)
        """, says="SIGSEGV (segmentation fault) ended the program  (step 5)", line="ctypes.string_at(0)",
    ),
    "segmentation fault in a fork that does not train": Case(
        """
        if (pid := os.fork()) == 0:
            ctypes.string_at(0)
        print(os.waitpid(pid, 0)[1], flush=True)
        """
    ),
    "SIGKILL": Case("os.kill(os.getpid(), 9)", says="SIGKILL (killed) ended the program  (step 5)", line="loss = model(torch.randn(4, 4)).square().mean()"),
    "SIGTERM": Case("os.kill(os.getpid(), 15); time.sleep(9)", says="SIGTERM (terminated) ended the program in step 5, at"),
    "SIGTERM in a fork that does not train": Case(
        """
        if (pid := os.fork()) == 0:
            time.sleep(30)
        os.kill(pid, 15)
        print(os.waitpid(pid, 0)[1], flush=True)
        """
    ),
    "SIGTERM with a handler": Case("os.kill(os.getpid(), 15)", "signal.signal(15, lambda *a: sys.exit(3))", says="5 steps watched"),
    "SIGTERM with a handler from the middle": Case("print(signal.signal(15, lambda *a: sys.exit(3))); os.kill(os.getpid(), 15)", says="5 steps watched"),
    "SIGUSR1": Case("os.kill(os.getpid(), signal.SIGUSR1); time.sleep(9)", says="SIGUSR1 (user defined signal 1) ended the program in step 5"),
    "SIGUSR1 with a handler": Case("os.kill(os.getpid(), signal.SIGUSR1)", "signal.signal(signal.SIGUSR1, lambda n, f: print('got', n, flush=True))"),
    "os._exit": Case("os._exit(5)", says="os._exit(5) ended the program in step 5, at"),
    "os._exit in a thread": Case("threading.Thread(target=os._exit, args=(6,)).start(); time.sleep(9)", says="os._exit(6) ended the program in step 5"),
    "os.exec": Case("os.execlp('sh', 'sh', '-c', 'echo other; exit 7')", says="ended the program in step 5, at"),
    "os.exec that fails": Case(
        """
        try:
            os.execv("/nonexistent", ["x"])
        except OSError as problem:
            print(problem, flush=True)
        """
    ),
    "exceptions in atexit": Case(before="import atexit\n@atexit.register\ndef late():\n    raise ValueError('late')"),
    "stderr is closed": Case("sys.stderr.close()"),
    "stderr is closed below Python": Case("os.close(2)"),
    "stderr is None": Case("sys.stderr = None"),
    "training in a thread": Case(main="thread = threading.Thread(target=train, args=(12, amid)); thread.start(); thread.join()"),
    "other threads": Case(
        main="""
        done = threading.Event()
        threads = [threading.Thread(target=lambda: [torch.ones(9).sum() for _ in range(99)] and done.wait()) for _ in range(3)]
        [thread.start() for thread in threads]
        train(12, amid); done.set()
        """
    ),
    "fork": Case(
        """
        if (pid := os.fork()) == 0:
            torch.manual_seed(1); train(3); os._exit(4)
        print(os.waitpid(pid, 0)[1], flush=True)
        """, nested=True,
    ),
    "multiprocessing, forked": Case(
        """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=train, args=(3,))
        child.start(); child.join(); print(child.exitcode, flush=True)
        """, nested=True,
    ),
    "asyncio": Case(
        before="import asyncio",
        main="""
        async def beside():
            for _ in range(5):
                await asyncio.sleep(0)
        async def all():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: print("term", flush=True))
            other = asyncio.create_task(beside())
            train(12, amid); os.kill(os.getpid(), 15); await other; await asyncio.sleep(0.1)
        asyncio.run(all())
        """,
    ),
    "the working directory is removed": Case("import shutil; os.mkdir('gone'); os.chdir('gone'); shutil.rmtree(os.getcwd())"),
    "the working directory was removed before": Case(before="import shutil, torch._dynamo; os.mkdir('gone'); os.chdir('gone'); shutil.rmtree(os.getcwd())"),
    "all files are closed and others opened": Case(
        "os.closerange(3, 256); files.extend(open(f'mine{i}', 'w+') for i in range(30))", "files = []",
        main="train(12, amid); print([file.read() for file in files], flush=True)",
    ),
    "meta device": Case(
        """
        shape = nn.Sequential(nn.Linear(4, 4, device="meta"), nn.ReLU())(torch.empty(2, 4, device="meta"))
        print(shape.shape, shape.device, flush=True)
        """
    ),
    "the clock jumps": Case(
        before="""
        import itertools
        jumps = itertools.cycle([0, 3600, -7200, 1e9, -1e9])
        def jumping(clock, unit):
            return lambda: clock() + type(clock())(next(jumps) * unit)
        time.time, time.monotonic = jumping(time.time, 1), jumping(time.monotonic, 1)
        time.perf_counter, time.perf_counter_ns = jumping(time.perf_counter, 1), jumping(time.perf_counter_ns, 10**9)
        """
    ),
}  # fmt: skip


def stderr_of(ran: Ran) -> list[str]:
    """What the program itself wrote, without what differs from process to process."""
    lines = [line for line in ran.err.splitlines() if not line.startswith("tensonde:")]
    lines = [line for line in lines if "/tensonde/" not in line and "/launch.py" not in line and "runpy" not in line]
    return [re.sub("0x[0-9a-f]+", "0x", line) for line in lines if "refcount" not in line]


@pytest.mark.parametrize("name", CASES)
def test_a_program_ends_as_without_tensonde(
    name: str, foundry: Foundry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    bare = foundry.bare(case.program, tmp_path)
    ran = foundry.watched(case.program, tmp_path, strict=False, budget=0.05)
    assert (ran.code, ran.out) == (bare.code, bare.out), ran.err
    assert "Tensonde failed" not in ran.err
    if "Extension modules" not in bare.err:
        assert stderr_of(ran) == stderr_of(bare)
    else:
        assert "Fatal Python error" in ran.err
    assert ran.folder is not None
    outcome = finish(ran.folder, ran.code, quiet=False)
    told = capsys.readouterr().err
    assert case.says in told
    assert "?" not in told.partition("steps")[0]
    if case.line:
        (finding,) = outcome["findings"]
        assert finding["source"]["code"] == case.line
        assert finding["rule"] == "crash"
    else:
        assert [f["rule"] for f in outcome["findings"] if f["rule"] != "crash"] == []
    if not case.nested:
        assert len(ran.recording.ranks) == 1
    else:
        assert sorted(rank.session["steps"] for rank in ran.recording.ranks)[-1] == 12
        assert len(ran.recording.ranks) == 2


def test_a_forked_child_of_multiprocessing_closes_its_recording(foundry: Foundry, tmp_path: Path) -> None:
    """It leaves by os._exit, past everything that is registered with atexit."""
    ran = foundry.watched(CASES["multiprocessing, forked"].program, tmp_path)
    assert [rank.state for rank in ran.recording.ranks] == ["finished", "finished"]


def test_ctrl_c_ends_by_sigint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with spaces and other letters, and under `python -O`, for which all of torch is compiled anew."""
    monkeypatch.setattr("launch.LONGEST", 300)
    folder = tmp_path / "my träinings ø 模型"
    folder.mkdir()
    before = "assert not sys.flags.optimize"
    amid = "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    script = folder / "träin it.py"
    script.write_text(Case(amid, before).program)
    bare = python("-O", script.name, cwd=folder)
    ran = cli("run", "--record", "rün 1", sys.executable, "-O", script.name, cwd=folder, folder=folder / "rün 1")
    assert bare.code in (-2, 1), "1 where torch's own code at exit clears Python's flag (it imports tabulate)"
    assert ran.code == 130, ran.err
    assert ran.out == bare.out
    assert "Ctrl-C ended the program in step 5, at träin it.py:" in ran.err
    assert "KeyboardInterrupt" in ran.err
    assert [rank.state for rank in ran.recording.ranks] == ["finished"]


def test_the_program_may_catch_ctrl_c(foundry: Foundry, tmp_path: Path) -> None:
    caught = """
    try:
        os.kill(os.getpid(), signal.SIGINT); time.sleep(9)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        print("caught", flush=True)
    """
    program = Case(caught).program
    bare, ran = foundry.bare(program, tmp_path), foundry.watched(program, tmp_path)
    assert (ran.code, ran.out) == (bare.code, bare.out)


@pytest.mark.parametrize("what", ["read-only", "a file"])
def test_a_place_where_nothing_can_be_recorded(what: str, tmp_path: Path) -> None:
    """The training runs; its recording goes elsewhere."""
    (tmp_path / "train.py").write_text(Case().program)
    place = tmp_path / ".tensonde"
    if what == "a file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o555)
        if os.access(place, os.W_OK):  # as root
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"nothing can be made read-only here: {done.stderr.strip()}")
    try:
        ran = cli("run", "train.py", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    finally:
        if os.path.ismount(place):
            subprocess.run(["umount", place], check=True)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 2
    assert "the recording goes to" in ran.err
    assert "12 steps watched" in ran.err


@pytest.mark.parametrize("number", [9, 19], ids=["killed", "hung"])
def test_the_hub_is_lost(number: int, foundry: Foundry, tmp_path: Path) -> None:
    hub = subprocess.Popen(
        [sys.executable, "-m", "tensonde", "ui", "--companion", "--no-open", str(tmp_path)],
        cwd=tmp_path, env=environment({"XDG_RUNTIME_DIR": str(tmp_path)}),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert hub.stdout is not None
        said = json.loads(hub.stdout.readline())
        program = Case(f"os.kill({hub.pid}, {number})").program
        ran = foundry.watched(program, tmp_path, strict=False, hub=f"{said['url']}/?token={said['token']}")
    finally:
        hub.kill()
        hub.communicate()
    bare = foundry.bare(Case().program, tmp_path)
    assert (ran.code, ran.out) == (bare.code, bare.out), ran.err
    assert "Traceback" not in ran.err
    assert ran.recording.state == "finished"
    assert not [f for f in diagnose(ran.recording) if f.severity != "info"]
