"""Surroundings that MindSpore or Tensonde cannot work in: one sentence, and the program goes on."""

from __future__ import annotations

import pytest

mindspore = pytest.importorskip("mindspore")

import numpy as np

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
