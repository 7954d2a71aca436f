"""Surroundings that MindSpore or Tensonde cannot work in: one sentence, and the program goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

mindspore = pytest.importorskip("mindspore")

import numpy as np

from launch import cli
from tensonde.adapters.mindspore import private
from tensonde.adapters.registry import adapter_of
from tensonde.errors import UsageError
from tensonde.launch import child
from tensonde.session.options import Options


@pytest.mark.parametrize(
    ("module", "version", "said"),
    [(mindspore, "2.3.1", "too old"), (np, "2.1.0", "needs numpy below 2")],
    ids=["old MindSpore", "numpy 2"],
)
def test_versions(monkeypatch: pytest.MonkeyPatch, module: object, version: str, said: str) -> None:
    monkeypatch.setattr(module, "__version__", version)
    if said == "needs numpy below 2":
        said = "its ops need numpy below 2"
    with pytest.raises(UsageError, match=said):
        private.check()


def test_the_program_runs_unwatched_where_the_version_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call = mindspore.nn.Cell.__call__
    monkeypatch.setattr(np, "__version__", "2.1.0")
    child._install(Options(run="nowhere"), "mindspore")
    (said,) = [record.getMessage() for record in caplog.records]
    assert "its ops need numpy below 2); the program runs unwatched" in said
    assert mindspore.nn.Cell.__call__ is call


def test_a_second_framework_is_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(child, "_watched", "torch")
    assert child._open(adapter_of("mindspore"), Options(run="nowhere")) is None
    assert "trains with both torch and mindspore: only torch" in caplog.text


def test_nothing_is_missing_in_this_release() -> None:
    assert private.missing() == {}


TRAINING = """
import numpy as np
from mindspore import Tensor, nn

net = nn.Dense(4, 2)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
for _ in range(3):
    step(Tensor(np.ones((3, 4), np.float32)), Tensor(np.zeros((3, 2), np.float32)))
print("trained")
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["check", "--memory"], 1, "it cannot be measured for MindSpore"),
        (["lr"], 2, "`tensonde lr` does not work with MindSpore"),
    ],
    ids=["memory", "lr"],
)
def test_what_mindspore_lacks_is_said(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    ran = cli(*words, "train.py", cwd=tmp_path)
    assert ran.code == code, ran.out + ran.err
    assert said in " ".join((ran.out + ran.err).split())
    assert words != ["lr"] or "trained" not in ran.out + ran.err  # nothing is run for nothing
