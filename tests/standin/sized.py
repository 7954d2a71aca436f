"""Trainings on the stand-in whose peak memory is measured: `sized.run(MODEL, BATCH)`. The last line of its output is the peak in bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import standin


class Residual(nn.Module):
    def __init__(self, inside: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(inside, out, 3, stride, 1), nn.BatchNorm2d(out)
        self.second, self.norm2 = nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out)
        self.short = nn.Conv2d(inside, out, 1, stride) if inside != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.norm2(self.second(hidden)) + self.short(x))


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(width, 4, batch_first=True), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(self.norm(x))


class GPT(nn.Module):
    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(100, 64), nn.Linear(64, 100)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.again = again

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x).flatten(0, 1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.lower = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 32, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        down = torch.relu(self.down(x))
        up = torch.relu(self.up(torch.relu(self.lower(down))))
        return self.out(torch.cat([down, up], 1)).mean((2, 3))


def made(name: str) -> nn.Module:
    if name == "mlp":
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1),
            nn.Linear(16 * 49, 10),
        )  # fmt: skip
    if name == "resnet":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1), Residual(16, 16), Residual(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(32, 10),
        )  # fmt: skip
    return UNet() if name == "unet" else GPT(again=name == "checkpointed")


def batch(name: str, size: int) -> tuple[Tensor, Tensor]:
    if name in ("gpt", "checkpointed", "accumulated"):
        ids = torch.randint(0, 100, (size, 33))
        return ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    x = torch.randn(size, 64) if name == "mlp" else torch.randn(size, 3, 16, 16)
    return x, torch.randint(0, 10, (size,))


def run(name: str, size: int, *, keep: bool = False) -> None:
    torch.manual_seed(0)
    net = made(name).to("standin")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    parts = 3 if name == "accumulated" else 1
    outputs = []
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(parts):
            x, y = (tensor.to("standin") for tensor in batch(name, size))
            out = net(x)
            (nn.functional.cross_entropy(out, y) / parts).backward()
        optimizer.step()
        if keep:
            outputs.append(out)  # KEPT
    print(standin.memory()[1])
