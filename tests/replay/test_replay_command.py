"""`tensonde replay` as its user meets it: a real process for the command and one for the script."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundle_trainings import HEAD
from replay_trainings import line_of

from launch import Foundry, Ran, cli

pytestmark = pytest.mark.timeout(600)  # two processes that import torch, for each of several commands

TRAINING = """
import argparse
from parts import build
parser = argparse.ArgumentParser()
parser.add_argument("--factor", type=float, default=1.0)
factor = parser.parse_args().factor
model = build()
print("built")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(16, 8)
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long()) * factor
    if step == BAD:
        loss = (loss * 0).log()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    open("steps", "a").write("x")
"""
PARTS = """
from torch import nn

def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 2))

def other():
    return nn.Linear(8, 2)
"""


@pytest.fixture(scope="module")
def project(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a package and a recording of a training that went wrong."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "parts.py").write_text(PARTS)
    (folder / "train.py").write_text(HEAD + TRAINING)
    runs = folder / ".tensonde" / "runs"
    runs.mkdir(parents=True)
    ran = foundry.watched(folder / "train.py", folder, argv=["--factor", "2"], budget=0.05, record=runs)
    assert ran.code == 0, ran.err
    assert ran.folder is not None
    ran.folder.rename(runs / "demo")
    (folder / "steps").unlink()
    return folder


def replay(folder: Path, *words: str | Path) -> tuple[Ran, dict[str, Any]]:
    ran = cli("replay", *words, "--json", cwd=folder)
    return ran, json.loads(ran.out) if ran.code < 2 else {}


def test_the_newest_recording_is_replayed_by_its_script(project: Path) -> None:
    ran, result = replay(project)
    assert ran.code == 0, ran.err
    assert (result["exact"], result["step"], result["different"], result["changed"]) == (True, 7, [], [])
    assert "running `train.py --factor 2` in . up to its first call of the model" in ran.err
    assert "built" in ran.err, "what the script prints is not part of the result"
    assert result["failure"]["source"]["line"] == line_of((project / "train.py").read_text())
    assert result["findings"][0]["title"] == "log of 0 gives -inf"
    assert "not_looked_at" not in result["findings"][0]["evidence"], "the training saw the steps before this one"
    assert not (project / "steps").exists()


def test_bundle_and_program_can_be_moved_together(project: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("train.py", "parts.py"):
        shutil.copy(project / name, moved)
    shutil.copytree(project / ".tensonde" / "runs" / "demo" / "rank0" / "bundles" / "step7", moved / "given" / "step7")
    ran = cli("replay", "given/step7", "--output", "again", cwd=moved)
    assert ran.code == 0, ran.err
    assert "step 7: reproduced bit for bit" in ran.out
    assert "error: log of 0 gives -inf" in ran.out
    assert cli("show", "again", cwd=moved).code == 0


def test_a_factory_builds_the_model(project: Path) -> None:
    ran, result = replay(project, "demo", "--factory", "parts:build")
    assert (ran.code, result["exact"]) == (0, True), ran.err
    ran, _ = replay(project, "demo", "--factory", "parts:other")
    assert ran.code == 2
    assert "the step cannot be replayed: model is a torch.nn.modules.linear.Linear here" in ran.err
    ran, _ = replay(project, "demo", "--factory", "parts:absent")
    assert ran.code == 2
    assert "the factory parts:absent failed: AttributeError" in ran.err


def test_a_program_that_changed_is_told_and_the_difference_found(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "copy")
    parts = tmp_path / "copy" / "parts.py"
    parts.write_text(PARTS.replace("nn.Dropout(0.2)", "nn.ReLU()"))
    ran, result = replay(tmp_path / "copy")
    assert ran.code == 0, "the same op fails at the same line"
    assert (result["exact"], result["reproduced"], result["changed"]) == (False, True, ["parts.py"])
    assert result["different"][0]["value"] == "model"
    assert "parts.py has changed since the bundle was made" in ran.err


def test_a_bundle_that_does_not_fail_any_more_is_not_reproduced(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "copy")
    path = tmp_path / "copy" / ".tensonde" / "runs" / "demo" / "rank0" / "bundles" / "step7" / "bundle.json"
    path.write_text(path.read_text().replace('"torch.Tensor.log"', '"torch.Tensor.exp"'))
    ran = cli("replay", cwd=tmp_path / "copy")
    assert ran.code == 1, ran.err
    assert "step 7: not reproduced" in ran.out
    assert "everything is finite here; in the training, log was the first that was not" in ran.out


def test_the_step_in_the_debugger(project: Path) -> None:
    words = "break /log#0\ncontinue\nwhere\nprint /log#0:out\nquit\n"
    ran = cli("replay", "--debug", "--ops", "0", cwd=project, stdin=words)
    assert ran.code == 0, ran.err
    line = line_of((project / "train.py").read_text())
    assert f"log at /log#0 (train.py:{line}) is the first that is not finite" in ran.err
    assert f"train.py:{line}  loss = (loss * 0).log()" in ran.out + ran.err
    assert "-inf" in ran.out + ran.err


def wrong(folder: Path, *words: str | Path) -> str:
    ran = cli("replay", *words, cwd=folder)
    assert ran.code == 2, ran.out + ran.err
    assert "Traceback" not in ran.err
    return ran.err.strip().removeprefix("tensonde: ")


def test_wrong_use_is_one_sentence(project: Path, tmp_path: Path) -> None:
    assert wrong(project, "demo", "--step", "3") == "demo has no bundle of step 3; it has those of step 7."
    assert "both build the model" in wrong(project, "--script", "a.py", "--factory", "b:c")
    assert "is not of the form package.module:function" in wrong(project, "--factory", "b")
    assert "there is no script absent.py" in wrong(project, "--script", "absent.py")
    assert "absent does not exist" in wrong(project, "absent")
    bundle = tmp_path / "step7"
    shutil.copytree(project / ".tensonde" / "runs" / "demo" / "rank0" / "bundles" / "step7", bundle)
    document = bundle / "bundle.json"  # by another name: folders above are those of all tests, up to the root
    document.write_text(document.read_text().replace("train.py", "train-7f3a.py"))
    assert "the script train-7f3a.py is neither here nor in a folder above the bundle" in wrong(tmp_path, bundle)


def test_a_recording_without_a_bundle_says_why(tmp_path: Path, foundry: Foundry) -> None:
    (tmp_path / "train.py").write_text(HEAD + TRAINING.replace("from parts import build", PARTS))
    ran = foundry.watched(tmp_path / "train.py", tmp_path, argv=["--factor", "2"], budget=0.05, bundle_bytes=500)
    assert ran.folder is not None
    assert "step 7 was not saved, because it has" in wrong(tmp_path, ran.folder)
    healthy = foundry.watched("import torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\n", tmp_path)
    assert healthy.folder is not None
    assert "one is saved when a loss or a gradient is not finite" in wrong(tmp_path, healthy.folder)


def test_a_script_that_ends_too_early(project: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)\n")
    bundle = project / ".tensonde" / "runs" / "demo"
    said = wrong(tmp_path, bundle, "--script", "train.py").splitlines()[-1]
    assert "`train.py --factor 2` ended with exit code 3 before it called the model of the bundle" in said


def test_tensonde_run_saves_a_step_and_replays_a_module(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(PARTS)
    text = TRAINING.replace("from parts", "from .parts").replace("step == BAD", "False")
    (package / "train.py").write_text(HEAD + text)
    ran = cli("run", "--record", "rec", "--save-step", "3", "-m", "package.train", cwd=tmp_path)
    assert ran.code == 0, ran.err
    ran, result = replay(tmp_path, "rec")
    assert (ran.code, result.get("exact"), result.get("failure")) == (0, True, None), ran.err
    assert "running `-m package.train`" in ran.err
