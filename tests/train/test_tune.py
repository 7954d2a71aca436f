"""`tensonde tune` on real scripts: without torch where torch is not the point, for it takes seconds to import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

import tensonde
from launch import Ran, cli, environment
from tensonde.errors import UsageError
from tensonde.model.documents import problems_of
from tensonde.train import tune

BOWL = """
import argparse, os, tensonde, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--kind", default="plain")
parser.add_argument("--wait", type=float, default=0)
options = parser.parse_args()
x = options.x if options.x is not None else float(os.environ["X"])
for step in range(20):
    tensonde.report("loss", (x - 3) ** 2 + 1 / (step + 1), step)
    time.sleep(options.wait / 20)
print("score:", -(x - 3) ** 2)
if options.kind == "fails":
    raise RuntimeError("of its own")
"""


def study(tmp_path: Path, *words: str, env: dict[str, str | None] | None = None) -> tuple[Ran, dict[str, Any]]:
    (tmp_path / "bowl.py").write_text(BOWL)
    ran = cli("tune", "bowl.py", *words, "--json", "--seed", "1", cwd=tmp_path, env=env)
    return ran, json.loads(ran.out) if ran.out else {}


def test_arguments_choices_and_the_page(tmp_path: Path) -> None:
    ran, found = study(
        tmp_path, "--param", "x=float:0:6", "--param", "kind=choice:plain,fails", "--trials", "6", "--jobs", "2"
    )
    assert ran.code == 0, ran.err
    assert problems_of("trials", found) == []
    assert len(found["trials"]) == 6
    assert {trial["state"] for trial in found["trials"]} <= {"complete", "failed", "pruned"}
    for trial in found["trials"]:
        if trial["params"]["kind"] == "fails":
            assert trial["finding"] == "RuntimeError: of its own"
        elif trial["state"] == "complete":
            tail = sum(1 / (k + 1) for k in range(10, 20)) / 10
            assert trial["value"] == pytest.approx((trial["params"]["x"] - 3) ** 2 + tail)
    assert found["best"]["value"] == min(t["value"] for t in found["trials"] if t["value"] is not None)
    page = (tmp_path / ".tensonde" / "studies" / "bowl" / "report.html").read_text()
    for title in ("Best so far", "Parallel coordinates", "Importance of the parameters"):
        assert f"<h2>{title}</h2>" in page
    assert "cdn.plot.ly" not in page.split("<script")[0], "the page needs no network"


def test_environment_and_a_printed_metric(tmp_path: Path) -> None:
    words = ["--env", "X=int:1:5", "--metric", "score", "--metric-from", "score: (\\S+)", "--reduce", "last"]
    ran, found = study(tmp_path, *words, "--sampler", "brute", "--trials", "9")
    assert ran.code == 0, ran.err
    assert found["direction"] == "maximize", "by its name"
    assert (found["best"]["params"], found["best"]["value"]) == ({"X": 3}, 0.0)
    assert len(found["trials"]) == 5, "all there are"


def test_a_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def objective(x, n):\n    return (x - 1) ** 2 + n\n")
    ran = cli(
        "tune", "f.py:objective", "--param", "x=float:0:2", "--param", "n=choice:0,5", "--trials", "3", "--json", "--seed", "1",
        cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(ran.out)
    for trial in found["trials"]:
        params = trial["params"]
        assert trial["value"] == pytest.approx((params["x"] - 1) ** 2 + int(params["n"]))


def begin(tmp_path: Path) -> subprocess.Popen[str]:
    (tmp_path / "bowl.py").write_text(BOWL)
    return subprocess.Popen(
        [sys.executable, "-m", "tensonde", "tune", "bowl.py", "--param", "x=float:0:6", "--trials", "6", "--pruner", "none",
         "--json", "--", "--wait", "0.6"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], lines: int) -> None:
    assert process.stderr is not None
    seen = 0
    while seen < lines:
        line = process.stderr.readline()
        assert line, "it ended too early"
        seen += line.startswith("trial")


def alive(tmp_path: Path) -> list[str]:
    """Trials of this folder that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(tmp_path.resolve()):
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [text] if "bowl.py --wait" in text else []
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_goes_on_after_being_stopped(tmp_path: Path, number: signal.Signals) -> None:
    process = begin(tmp_path)
    wait_for(process, 2)
    time.sleep(0.4)  # into the third
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    time.sleep(0.2)
    assert alive(tmp_path) == [], "no training is left behind"
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert json.loads(out)["best"] is not None, "best so far"
        assert "goes on from here" in err
    again = begin(tmp_path)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert 3 <= err.count("\ntrial") <= 4, "what was finished is not done again"
    trials = json.loads(out)["trials"]
    done = [trial for trial in trials if not trial["finding"].startswith("cut off")]
    assert len(done) == 6
    for cut in (trial for trial in trials if trial["finding"].startswith("cut off")):
        assert any(trial["params"] == cut["params"] for trial in done), "it was tried again with the same values"


def test_on_a_terminal_it_shows_what_runs(tmp_path: Path) -> None:
    import pexpect

    (tmp_path / "bowl.py").write_text(BOWL)
    words = ["-m", "tensonde", "tune", "bowl.py", "--param", "x=float:0:6", "--trials", "1", "--", "--wait", "1.5"]
    shown = pexpect.spawn(
        sys.executable, words, cwd=str(tmp_path), env={**environment(), "TERM": "xterm"}, encoding="utf-8", dimensions=(24, 100)
    )  # fmt: skip
    shown.expect(r"0 of 1 done  trial 0: \d+ s, step \d+ loss [\d.]+", timeout=60)
    shown.expect(r"best so far", timeout=60)
    shown.expect(pexpect.EOF, timeout=60)
    shown.close()
    assert shown.exitstatus == 0


def test_a_hopeless_script_is_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    ran = cli("tune", "bad.py", "--param", "x=float:0:1", cwd=tmp_path)
    assert ran.code == 2
    assert "the first 3 trials all failed (bad.py: error: unrecognized arguments: --x" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["none.py", "--param", "x=float:0:1"], "there is no script 'none.py'"),
        (["bowl.py"], "no parameter was given"),
        (["bowl.py", "--param", "x=float:0:1", "--param", "x=int:0:1"], "'x' was given twice"),
        (["bowl.py:3", "--param", "x=float:0:1"], "names no function"),
        (["torchrun", "--param", "x=float:0:1"], "takes a Python script"),
    ],
)
def test_wrong_use(tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "bowl.py").write_text(BOWL)
    ran = cli("tune", *words, cwd=tmp_path)
    assert ran.code == 2
    assert sentence in ran.err
    assert not (tmp_path / ".tensonde").exists()


NAN = """
import argparse, time, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--shift", type=float)
options = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(600):
    out = model(torch.ones(4, 3)).abs() * 0 + options.shift * (1 - step / 5)
    loss = out.log().mean() ** 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_a_trial_that_goes_to_nan_ends_early_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "nan.py").write_text(NAN)
    ran = cli("tune", "nan.py", "--param", "shift=float:1:2", "--trials", "1", "--json", cwd=tmp_path)
    (trial,) = json.loads(ran.out)["trials"]
    assert trial["state"] == "nonfinite"
    assert "log of" in trial["finding"]
    assert trial["finding"].endswith("nan.py:12")
    assert trial["seconds"] < 55, "the script itself takes a minute"


def test_a_function_in_this_process(tmp_path: Path) -> None:
    def objective(x: float, kind: int) -> float | None:
        given.append({"x": x, "kind": kind})
        for step in range(15):
            tensonde.report("loss", float("nan") if x > 1.8 else (x - 1) ** 2 + kind + 1 / (step + 1))
        return None

    given: list[dict[str, Any]] = []
    space = {"x": "float:0:2", "kind": "choice:0,1"}
    found = tune(objective, space, trials=12, study=tmp_path / "s", seed=3, pruner="none")
    assert len(found.trials) == 12
    assert abs(found.best_params["x"] - 1) < 0.5
    assert found.best_params in given, "numbers are the numbers that the function got"
    bad = [trial for trial in found.trials if trial.params["x"] > 1.8]
    assert all(trial.user_attrs["outcome"] == "nonfinite" for trial in bad)
    assert len(tune(objective, space, trials=14, study=tmp_path / "s", seed=3).trials) == 14, "it goes on"
    with pytest.raises(UsageError, match="no parameters"):
        tune(objective, {}, study=tmp_path / "t")


@pytest.mark.slow
@pytest.mark.companions
def test_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray.tune", reason="ray is not installed (dependency group companions)")
    (tmp_path / "bowl.py").write_text(BOWL)
    words = ["--param", "x=float:0:6", "--trials", "2", "--jobs", "2", "--engine", "ray", "--pruner", "none", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "tensonde", "tune", "bowl.py", *words],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=170,
    )  # fmt: skip  # Ray takes its time to begin on a busy machine
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * 2
    for trial in found["trials"]:
        assert trial["value"] > (trial["params"]["x"] - 3) ** 2
        assert Path(tmp_path / trial["recording"]).is_dir()
