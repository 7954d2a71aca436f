"""Our callbacks in the real Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed (dependency group companions)")

from train_sample import equal, parts, weights

import tensonde
from tensonde.train import (
    Callback,
    CheckpointConfig,
    EarlyStopping,
    LearningRateMonitor,
    LossMonitor,
    ModelCheckpoint,
    RunContext,
    SaveBest,
    load_checkpoint,
)

pytestmark = pytest.mark.companions


class Net(pl.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss_fn, self._optimizer, self.loader = parts()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        return self.loss_fn(self.network(x), y)

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("accuracy", (self.network(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self._optimizer


def fit(tmp_path: Path, *callbacks: Callback, epochs: int = 2, validate: bool = False, fails: bool = False) -> Net:
    net = Net()
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(tmp_path), callbacks=[tensonde.lightning(*callbacks)],
    )  # fmt: skip
    trainer.fit(net, net.loader, net.loader if validate else None)
    return net


class Log(Callback):
    def __init__(self) -> None:
        self.log: list[str] = []

    def on_train_begin(self, run_context: RunContext) -> None:
        self.log.append("begin")

    def epoch_begin(self, run_context: RunContext) -> None:
        self.log.append(f"{run_context.original_args().mode} epoch")

    def step_end(self, run_context: RunContext) -> None:
        known = run_context.original_args()
        self.log.append(f"{known.mode} {known.cur_epoch_num}.{known.cur_step_num}")

    def on_train_end(self, run_context: RunContext) -> None:
        self.log.append("end")


def test_events_losses_and_the_same_weights(tmp_path: Path) -> None:
    plain = fit(tmp_path)
    log, losses, rates = Log(), LossMonitor(0), LearningRateMonitor()
    saver = ModelCheckpoint("net", tmp_path, CheckpointConfig(save_checkpoint_steps=4))
    watched = fit(tmp_path, log, losses, rates, saver)
    assert equal(weights(watched.network), weights(plain.network)), "callbacks change nothing"
    assert log.log == [
        "begin", "train epoch", "train 1.1", "train 1.2", "train 1.3", "train 1.4",
        "train epoch", "train 2.5", "train 2.6", "train 2.7", "train 2.8", "end",
    ]  # fmt: skip
    assert len(losses.losses) == 8
    assert all(0 < loss < 2 for loss in losses.losses)
    assert rates.rates == [[0.01]] * 8
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["net-1_4.safetensors", "net-2_4.safetensors"]
    other = Net()
    assert saver.latest is not None
    load_checkpoint(saver.latest, other)
    assert equal(weights(other.network), weights(watched.network))


def test_evaluations_best_and_stop(tmp_path: Path) -> None:
    log, best, stop = Log(), SaveBest("accuracy", tmp_path / "best.safetensors"), EarlyStopping("accuracy", patience=1)
    fit(tmp_path, log, best, stop, epochs=60, validate=True)
    epochs = log.log.count("train epoch")
    assert 1 < epochs < 60
    assert log.log.count("eval epoch") == epochs, "the sanity check before the training does not count"
    assert best.best is not None
    assert (tmp_path / "best.safetensors").exists()


def test_an_exception_is_named(tmp_path: Path) -> None:
    class Broken(Callback):
        def step_end(self, run_context: RunContext) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fit(tmp_path, Broken())
    assert "the callback Broken (1 of 1) in step_end" in caught.value.__notes__[0]


def test_the_loss_is_the_one_that_training_step_returned(tmp_path: Path) -> None:
    """Lightning hands out the loss divided by the number of batches in a step."""

    class Noting(Net):
        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = super().training_step(batch, index)
            returned.append(loss.item())
            return loss

    returned: list[float] = []
    monitor, net = LossMonitor(0), Noting()
    pl.Trainer(
        max_epochs=1, accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(tmp_path),
        callbacks=[tensonde.lightning(monitor)],
    ).fit(net, net.loader)  # fmt: skip
    assert monitor.losses == pytest.approx(returned)
