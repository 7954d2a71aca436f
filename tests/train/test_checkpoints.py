"""Checkpoints: whole or not at all, tied weights, the optimizer, and the newest few kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from train_sample import equal, parts, weights

from tensonde.errors import UsageError
from tensonde.train import CheckpointConfig, Model, ModelCheckpoint, load_checkpoint, save_checkpoint


def test_the_newest_are_kept_and_the_last_step_is_there(tmp_path: Path) -> None:
    network, loss_fn, optimizer, loader = parts()
    saver = ModelCheckpoint("net", tmp_path, CheckpointConfig(save_checkpoint_steps=3, keep_checkpoint_max=2))
    Model(network, loss_fn, optimizer).train(2, loader, saver)  # 8 steps: 3, 6, and 8 at the end
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net-2_2.safetensors", "net-2_4.safetensors"]
    assert saver.latest == tmp_path / "net-2_4.safetensors"
    other = parts(seed=1)[0]
    load_checkpoint(saver.latest, other)
    assert equal(weights(other), weights(network))


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))

    def step(network: nn.Module, loss_fn: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss_fn(network.eval()(x), y).backward()
        optimizer.step()

    network, loss_fn, optimizer, _ = parts()
    step(network, loss_fn, optimizer)
    save_checkpoint(network, tmp_path / "a.safetensors", optimizer=optimizer)
    step(network, loss_fn, optimizer)
    again, _, fresh, _ = parts(seed=5)
    load_checkpoint(tmp_path / "a.safetensors", again, fresh)
    step(again, loss_fn, fresh)
    assert equal(weights(again), weights(network))


def test_tied_weights(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    save_checkpoint(net, tmp_path / "tied.safetensors")
    assert sorted(load_checkpoint(tmp_path / "tied.safetensors")) == ["0.bias", "0.weight", "1.bias", "1.weight"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save_checkpoint({"x": torch.ones(2)}, path)
    before = path.read_bytes()

    def fails(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint({"x": torch.zeros(2)}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both 0"):
        CheckpointConfig(save_checkpoint_steps=0)
    with pytest.raises(UsageError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"not one")
    with pytest.raises(UsageError, match="cannot be read as a safetensors checkpoint"):
        load_checkpoint(tmp_path / "bad.safetensors")
    save_checkpoint({"x": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(UsageError, match="holds no optimizer"):
        load_checkpoint(tmp_path / "x.safetensors", optimizer=parts()[2])
