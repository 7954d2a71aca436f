"""`tensonde run` in front of a command changes nothing about it: arguments, input, output, exit codes, signals, children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

from launch import Foundry, Ran, cli, environment, python
from tensonde.adapters.registry import ADAPTERS, installed
from tensonde.store.reader import Recording

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps=3):
    for _ in range(steps):
        loss = model(torch.randn(4, 4)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def launch(*words: str | Path, cwd: Path, **options: object) -> Ran:
    return cli("run", "--record", cwd / "recording", *words, cwd=cwd, folder=cwd / "recording", **options)  # type: ignore[arg-type]


def test_arguments_main_and_input_are_as_usual(tmp_path: Path) -> None:
    """Also a sitecustomize of the user's own, and what children inherit."""
    write(tmp_path / "site" / "sitecustomize.py", "import os; os.environ['USERS_OWN'] = 'ran'\n")
    write(tmp_path / "beside.py", "answer = 42\n")
    script = write(
        tmp_path / "train.py",
        TRAIN
        + textwrap.dedent("""
        import sys, os, pickle, inspect, beside
        class Here: pass
        train()
        print(sys.argv, __name__, __file__, sys.path[0], beside.answer)
        print(pickle.loads(pickle.dumps(Here())).__class__.__module__, sys.modules["__main__"].Here is Here)
        print(sys.stdin.read(), os.environ["USERS_OWN"], sys.flags.isolated, __spec__)
        print([p for p in sys.path if "startup" in p], "sitecustomize" in sys.modules)
        sys.stderr.write("to stderr\\n")
        sys.exit(3)
    """),
    )
    env = {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{environment()['PYTHONPATH']}"}
    bare = python("train.py", "--lr", "0.1", "--watch", "-m", cwd=tmp_path, stdin="typed", env=env)
    assert bare.code == 3
    assert "ran" in bare.out
    ran = launch("train.py", "--lr", "0.1", "--watch", "-m", cwd=tmp_path, stdin="typed", env=env)
    assert ran.code == 3
    assert ran.out == bare.out
    assert "to stderr\n" in ran.err
    assert ran.session["steps"] == 3
    assert ran.recording.manifest["script"] == script.name


def test_a_traceback_is_the_users_own(tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        TRAIN
        + textwrap.dedent("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 1))
            def forward(self, x):
                return self.inner(x)
        train()
        def go():
            try:
                Net()(torch.randn(2, 4))
            except RuntimeError as problem:
                raise ValueError("as it was") from problem
        go()
    """),
    )
    bare = python("train.py", cwd=tmp_path)
    ran = launch("train.py", cwd=tmp_path)
    assert ran.code == bare.code == 1
    assert "mat1 and mat2" in bare.err
    lines = [
        line
        for line in ran.err.splitlines()
        if not line.startswith(("tensonde:", "error:", "warning:", "    train.py:"))
    ]
    assert bare.err.splitlines() == lines[: len(bare.err.splitlines())]
    failure = ran.session["exit"]["exception"]
    assert failure["type"] == "ValueError"
    assert failure["step"] == 3


def test_the_traceback_of_a_backward_pass_is_the_users_own(tmp_path: Path) -> None:
    """Here a mode of Tensonde's is on, and torch takes its functions through it."""
    write(
        tmp_path / "train.py",
        TRAIN
        + textwrap.dedent("""
        train()
        gate = torch.sigmoid(torch.ones(3, requires_grad=True))
        gate *= 2
        torch.cat([gate.sum()[None], gate]).sum().backward()
    """),
    )
    bare = python("train.py", cwd=tmp_path)
    ran = launch("train.py", cwd=tmp_path)
    assert "modified by an inplace operation" in bare.err
    printed = ran.err[ran.err.index("Traceback") :].splitlines()
    expected = bare.err.splitlines()
    assert printed[: len(expected)] == expected


def test_modules_are_run_with_m(tmp_path: Path) -> None:
    write(tmp_path / "pkg" / "__init__.py", "")
    write(tmp_path / "pkg" / "other.py", "name = 'relative'\n")
    write(
        tmp_path / "pkg" / "mod.py",
        TRAIN + "import sys\nfrom . import other\ntrain()\nprint(sys.argv[1:], __name__, other.name, __spec__.name)\n",
    )
    expected = "['--x', '1'] __main__ relative pkg.mod\n"
    direct = launch("-m", "pkg.mod", "--x", "1", cwd=tmp_path)
    assert (direct.code, direct.out) == (0, expected)
    assert direct.session["steps"] == 3
    other = cli(
        "run",
        "--record",
        "second",
        sys.executable,
        "-m",
        "pkg.mod",
        "--x",
        "1",
        cwd=tmp_path,
        folder=tmp_path / "second",
    )
    assert (other.code, other.out) == (0, expected)
    assert other.session["steps"] == 3


def test_a_zipapp_and_a_script_by_another_name_are_run(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", TRAIN + "import sys\ntrain()\nprint(sys.argv[1:], __name__)\n")
    ran = launch("app.pyz", "--x", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "['--x'] __main__\n"), ran.err
    assert ran.session["steps"] == 3
    write(tmp_path / "train", "print('by another name')\n")
    other = cli("run", "--record", "second", "train", cwd=tmp_path)
    assert (other.code, other.out) == (0, "by another name\n"), other.err


def test_torchrun_gives_a_folder_a_rank(tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        """
        import os, torch, torch.distributed as dist
        from torch import nn
        dist.init_process_group("gloo")
        torch.manual_seed(dist.get_rank())
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            loss = model(torch.randn(4, 4)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        total = torch.stack([p.sum() for p in model.parameters()]).sum()
        open(f"sum{dist.get_rank()}", "w").write(total.item().hex())
        dist.destroy_process_group()
    """,
    )
    ran = launch("torchrun", "--nproc-per-node", "2", "--master-port", "29617", "train.py", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert [rank.name for rank in ran.recording.ranks] == ["rank0", "rank1"]
    for k, rank in enumerate(ran.recording.ranks):
        assert (rank.rank, rank.session["world_size"], rank.session["steps"]) == (k, 2, 4)
        addresses = {site.address for site in rank.sites.values()}
        assert {"0:out", "1:grad", "0.weight:grad"} <= addresses
        assert rank.session["failures"] == {}
    assert (tmp_path / "sum0").read_text() == (tmp_path / "sum1").read_text()


def test_children_of_the_script_are_reached(tmp_path: Path) -> None:
    """A subprocess, spawned ranks and a fork that trains: each in a folder of its own; children that do not train leave none."""
    write(tmp_path / "child.py", TRAIN + "train(2)\n")
    write(
        tmp_path / "parent.py",
        TRAIN
        + textwrap.dedent("""
        import os, subprocess, sys
        import torch.multiprocessing as mp
        def rank(k):
            train(4 + k)
        if __name__ == "__main__":
            train(3)
            subprocess.run([sys.executable, "child.py"], check=True)
            subprocess.run([sys.executable, "-c", "print('no training')"], check=True)
            mp.spawn(rank, nprocs=2)
            pid = os.fork()
            if pid == 0:
                train(6)
                import atexit; atexit._run_exitfuncs(); os._exit(0)
            os.waitpid(pid, 0)
            train(1)
    """),
    )
    ran = launch("parent.py", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.out == "no training\n"
    steps = sorted(rank.session.get("steps", -1) for rank in ran.recording.ranks)
    assert steps == [2, 4, 4, 5, 6]
    assert ran.recording.state == "finished"


@pytest.mark.parametrize(
    ("number", "handled"),
    [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGKILL, False), (signal.SIGINT, True)],
)
def test_signals_reach_the_script(tmp_path: Path, number: signal.Signals, handled: bool) -> None:
    """SIGKILL is sent to the script itself; the others to Tensonde (SIGINT, as a terminal does it, to both)."""
    install = f"signal.signal({int(number)}, lambda *a: sys.exit(7))" if handled and number != signal.SIGINT else ""
    write(
        tmp_path / "train.py",
        TRAIN
        + textwrap.dedent(f"""
        import os, signal, sys, time
        {install}
        train()
        try:
            print(os.getpid(), flush=True)
            while True:
                train(1)
                time.sleep(0.01)
        except KeyboardInterrupt:
            sys.exit(9)
    """),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tensonde", "run", "--record", "recording", "train.py"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    child = int(process.stdout.readline())
    if number == signal.SIGKILL:
        time.sleep(1.2)
        os.kill(child, number)
    elif number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    expected = {(signal.SIGTERM, True): 7, (signal.SIGINT, True): 9}.get((number, handled), 128 + number)
    assert process.returncode == expected, err
    recording = Recording.open(tmp_path / "recording")
    assert recording.ranks[0].sites
    if handled:
        assert recording.state == "finished"
        assert recording.ranks[0].session["steps"] >= 3
    else:
        assert recording.state == "killed"
    if number == signal.SIGKILL:
        assert recording.ranks[0].digests().num_rows > 0
        assert recording.problems == []


def test_exit_codes_of_every_kind(foundry: Foundry, tmp_path: Path) -> None:
    endings = {
        "sys.exit('a message')": 1, "raise SystemExit(5)": 5, "sys.exit(None)": 0, "import os; os._exit(4)": 4,
        "raise KeyError('x')": 1, "import os; os.abort()": 134,
    }  # fmt: skip
    for ending, code in endings.items():
        ran = foundry.watched(TRAIN + f"import sys\ntrain()\n{ending}\n", tmp_path)
        assert ran.code == code, ending


def test_a_framework_that_is_not_there(tmp_path: Path) -> None:
    missing = next(name for name in ADAPTERS if name not in installed())
    write(tmp_path / "train.py", f"import {missing}\n")
    ran = launch("train.py", cwd=tmp_path)
    assert ran.code == 1
    assert f"No module named '{missing}'" in ran.err
    assert f"is not installed for {sys.executable}; `pip install 'tensonde[{missing}]'` there." in ran.err


def test_a_script_that_does_not_train(tmp_path: Path) -> None:
    write(tmp_path / "plain.py", "print('hello')\n")
    ran = launch("plain.py", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "hello\n")
    assert "no training was seen" in ran.err
