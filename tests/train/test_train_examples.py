"""The guide's examples, rewritten for PyTorch, give what the guide says they give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launch import Foundry

EXAMPLES = Path(__file__).parents[2] / "examples"

pytest.importorskip("torchmetrics")


def test_metrics(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.bare(EXAMPLES / "metrics.py", tmp_path)
    assert ran.out == "Accuracy is 0.6667\nRight: 2\n", ran.err


def test_callbacks(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.bare(EXAMPLES / "callbacks.py", tmp_path)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("epoch: 1 step: 1, loss is 0.")
    assert len(re.findall(r"^epoch: \d step: \d, loss is", ran.out, re.MULTILINE)) == 8
    assert len(re.findall(r"^epoch time: [\d.]+ ms, per step time: [\d.]+ ms$", ran.out, re.MULTILINE)) == 2
    saved = [float(found) for found in re.findall(r"the accuracy is ([\d.]+)", ran.out)]
    assert saved
    assert saved == sorted(set(saved))
    assert (tmp_path / "accuracy.safetensors").exists()
    assert len(list((tmp_path / "checkpoints").glob("CKP-*.safetensors"))) == 5
    assert re.search(r"^epoch: \d+ step: \d+ loss: \d\.[\de.-]+$", ran.out, re.MULTILINE)
    assert [line.split()[0] for line in lines[-5:]] == ["accuracy", "f1_score", "loss", "precision", "recall"]


def test_checkpoints(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.bare(EXAMPLES / "checkpoints.py", tmp_path)
    assert ran.out == "same value: 0.weight (3, 2)\nAll params num: 4\nsame params num: 1\n", ran.err


def test_warm_up(foundry: Foundry, tmp_path: Path) -> None:
    assert foundry.bare(EXAMPLES / "warm_up.py", tmp_path).out == "[0.0, 0.025, 0.05, 0.075, 0.1, 0.1]\n"
