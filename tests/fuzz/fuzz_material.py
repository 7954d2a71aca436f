"""What is damaged: one of everything that a reading command takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from launch import Foundry
from tensonde.cli.main import cli

TESTS = Path(__file__).parent.parent
TRAINING = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.norm, self.decoder = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.extra = torch.compile(nn.Linear(8, 8), backend="aot_eager")
    def forward(self, x):
        return self.decoder(torch.relu(self.norm(self.encoder(x)) + self.extra(self.encoder(x))))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
for step, (x, y) in enumerate(DataLoader(data, batch_size=4, shuffle=True)):
    loss = nn.functional.cross_entropy(model(x if step < 5 else x / 0), y)
    optimizer.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); scheduler.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "model.pt")
"""


def make(foundry: Foundry, folder: Path) -> None:
    """`run`, `dump`, checkpoints in every format, and the golden ones of other tools."""
    work = folder / "work"
    work.mkdir()
    dump = {
        "common_dump_settings": {"dump_mode": 1, "kernels": ["*:out"], "iteration": "0|1"},
        "async_dump_settings": {"enable": True},
    }
    ran = foundry.watched(
        TRAINING, work, record=folder, watch=[("decoder:out", "norm > 0")], on_hit="capture", graph="nodes", save_steps=(2,), dump=dump
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.folder is not None
    ran.folder.rename(folder / "run")
    shutil.move(work / "model.pt", folder / "model.pt")
    shutil.move(work / "dump", folder / "dump")
    shutil.copytree(TESTS / "golden" / "v1", folder / "old")
    shutil.copytree(TESTS / "sources" / "golden", folder / "golden")
    for target in ("model.safetensors", "model.npz", "model.parquet", "arrays"):
        cli.main(["convert", str(folder / "model.pt"), str(folder / target)], standalone_mode=False)
    np.save(folder / "one.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    (folder / "mindspore.ckpt").write_bytes(_mindspore())
    sharded = folder / "sharded"
    sharded.mkdir()
    shutil.copy(folder / "model.safetensors", sharded / "model-1.safetensors")
    from tensonde.store.sources import open_source

    names = [entry.name for entry in open_source(sharded / "model-1.safetensors").entries]
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-1.safetensors")}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.rmtree(work)


def _mindspore() -> bytes:
    def field(number: int, content: bytes) -> bytes:
        assert len(content) < 16384
        size = bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 127 | 128, len(content) >> 7])
        return bytes([number << 3 | 2]) + size + content

    made = b""
    for name in (b"fc.weight", b"fc.bias"):
        tensor = bytes([1 << 3, 4]) + field(2, b"Float32") + field(3, np.arange(4, dtype="<f4").tobytes())
        made += field(1, field(1, name) + field(2, tensor))
    return made
