"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launch import environment

TESTS = """
import hashlib
import pytest
import torch
from torch import nn


def train(broken=False, raises=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        p = model(torch.randn(5, 4)).softmax(1)
        p = p * 0 if broken and step == 2 else p
        loss = -p.log().mean()  # HERE
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if raises:
        model(torch.randn(5, 3))
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def test_unmarked_is_left_alone():
    train(broken=True)

@pytest.mark.tensonde
def test_healthy():
    train()

@pytest.mark.tensonde
def test_broken():
    train(broken=True)

@pytest.mark.tensonde("**:grad norm >= 0")
def test_hit():
    train()

@pytest.mark.tensonde
def test_raises():
    train(raises=True)

def test_fixture(tensonde):
    train(broken=True)
    assert tensonde.findings()[0].rule == "nan-origin"

@pytest.mark.tensonde
def test_without_a_training():
    pass

_seen = []

def test_bare_and_watched_are_the_same_1():
    _seen.append(train())

@pytest.mark.tensonde
def test_bare_and_watched_are_the_same_2():
    assert _seen == [train()]
"""
LINE = next(k for k, line in enumerate(TESTS.splitlines(), 1) if "HERE" in line)


def run(folder: Path, text: str) -> str:
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tensonde.testing.plugin", "-rA", "--strict-markers", "test_it.py"],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_tests_fail_where_their_training_has_an_error(tmp_path: Path) -> None:
    said = run(tmp_path, TESTS)
    outcomes = {
        line.split("::")[1].split(" ")[0]: line.split(" ")[0] for line in said.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))
    }  # fmt: skip
    assert outcomes == {
        "test_unmarked_is_left_alone": "PASSED", "test_healthy": "PASSED", "test_broken": "FAILED", "test_hit": "FAILED",
        "test_raises": "FAILED", "test_fixture": "FAILED", "test_without_a_training": "PASSED",
        "test_bare_and_watched_are_the_same_1": "PASSED", "test_bare_and_watched_are_the_same_2": "PASSED",
    }, said  # fmt: skip
    assert "log of 0 gives -inf" in said
    assert f"test_it.py:{LINE}" in said
    assert "hit: " in said


def test_a_mark_that_means_nothing_is_refused(tmp_path: Path) -> None:
    said = run(tmp_path, "import pytest\n@pytest.mark.tensonde(fail_on='never')\ndef test_it(): pass\n")
    assert "fail_on is 'never'" in said
