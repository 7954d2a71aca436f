"""A training on the stand-in that counts what each of its steps asks of the device: `python counted.py MODEL STEPS`, bare or under `tensonde run`.

Prints one line of JSON: the counts of the first step, of the middle one of the others and of the largest, and memory.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

import torch
from torch import Tensor, nn

import standin


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.more, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16 * 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(torch.relu(self.norm2(self.more(x))).flatten(1))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, 4, -1).transpose(1, 2) for t in self.mix(self.first(x)).split(width, 2))
        scores = (q @ k.transpose(2, 3)) / (width / 4) ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf")).softmax(3)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.blocks = nn.Sequential(*(Block(32) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 64)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def mlp() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def made(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    if name == "cnn":
        return CNN(), torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    if name == "mlp":
        return mlp(), torch.randn(32, 64), torch.randint(0, 10, (32,))
    ids = torch.randint(0, 64, (8, 17))
    return GPT(), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def main(name: str, steps: int) -> None:
    torch.manual_seed(0)
    model, x, y = made(name)
    model, x, y = model.to("standin"), x.to("standin"), y.to("standin")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen: list[dict[str, int]] = []
    before = standin.counts()
    for step in range(steps):
        if step == 2:
            first_peak = standin.memory()[1]
            standin.ext.reset_peak(0)
        out = model(x)
        loss = nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = standin.counts()
        seen.append(dict(now - before))
        before = now
    found: dict[str, Any] = {"loss": loss.item(), "peak": standin.memory()[1], "first_peak": first_peak}
    for key in sorted({key for counts in seen for key in counts}):
        column = [counts.get(key, 0) for counts in seen]
        found[key] = {"first": column[0], "median": statistics.median(column[2:]), "largest": max(column[2:])}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40)
