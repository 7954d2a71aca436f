"""A few scripts of the corpus, by the runner of `make corpus`; and the runner's own judgement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "corpus"))

import run as corpus  # noqa: E402


@pytest.mark.parametrize(
    "name", ["exc_view_changes_batch", "exc_everything_frozen_no_grad_fn", "exc_inplace_on_saved_activation"]
)
def test_a_bug_is_named_and_its_twin_is_not(name: str) -> None:
    done = [(job, *corpus.run(job, 120)) for job in corpus.jobs(name)]
    bug, fixed = corpus.judge_all(done)
    assert bug.named, bug
    assert bug.rank == 1
    assert fixed.alarms == ()


@pytest.mark.parametrize("name", ["h03_lstm_truncated_bptt", "h21_sparse_relu_inplace"])
def test_a_healthy_training_is_silent(name: str) -> None:
    (verdict,) = corpus.judge_all([(job, *corpus.run(job, 120)) for job in corpus.jobs(name)])
    assert verdict.alarms == ()
    assert verdict.problem == ""


def test_a_module_is_matched_whole() -> None:
    meta = {"culprit": {"module": "blocks.1 (GatedBlock.forward)", "line": 5}}
    source = {"file": "train.py", "line": 9}
    assert corpus.names({"site": "blocks.1:out", "source": source}, meta, "train.py") == "module"
    assert corpus.names({"site": "blocks.1.weight:grad", "source": source}, meta, "train.py") == "module"
    assert corpus.names({"site": "blocks.11:out", "source": source}, meta, "train.py") == ""
    assert corpus.names({"site": "blocks:out", "source": source}, meta, "train.py") == ""
    assert corpus.names({"site": None, "source": {"file": "x/train.py", "line": 5}}, meta, "train.py") == "line"
