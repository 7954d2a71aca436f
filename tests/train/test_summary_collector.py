"""SummaryCollector writes event files that TensorBoard reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_sample import parts

from tensonde.errors import UsageError
from tensonde.train import LossMonitor, Model, SummaryCollector

events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_scalars_histograms_and_metrics(tmp_path: Path) -> None:
    network, loss_fn, optimizer, loader = parts()
    losses = LossMonitor(0)
    collector = SummaryCollector(tmp_path, collect_freq=1, histogram_freq=4)
    Model(network, loss_fn, optimizer, {"accuracy"}).train(2, loader, [losses, collector], valid_dataset=loader)
    read = events.EventAccumulator(str(tmp_path), {"histograms": 0})
    read.Reload()
    found = read.Scalars("loss")
    assert [event.step for event in found] == list(range(1, 9))
    assert [event.value for event in found] == pytest.approx(losses.losses)
    assert [event.step for event in read.Scalars("eval/accuracy")] == [4, 8]
    assert [event.value for event in read.Scalars("lr/0")] == [pytest.approx(0.01)] * 8
    assert "gradients/0.weight" in read.Tags()["histograms"]


def test_without_tensorboard_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"SummaryCollector needs .*pip install 'tensonde\[train\]'"):
        SummaryCollector()
