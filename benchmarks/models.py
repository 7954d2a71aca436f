"""The models of the overhead benchmarks: dispatch-bound, convolutional, transformer; short steps, and a neural ODE."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp() -> nn.Module:
    """24 × (Linear 32→32, LayerNorm, ReLU) and a head: 75 modules whose ops take microseconds."""
    layers: list[nn.Module] = []
    for _ in range(24):
        layers += [nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU()]
    return nn.Sequential(nn.Sequential(*layers), nn.Linear(32, 10))


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu2 = nn.ReLU()
        self.short = (
            nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
            if stride != 1 or inside != outside
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        short = x if self.short is None else self.short(x)
        x = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(x)) + short)


def resnet() -> nn.Module:
    """ResNet-18 for 64×64 images: 11 million parameters."""
    width = 64
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    for k in range(4):
        inside, outside = width * 2 ** max(0, k - 1), width * 2**k
        layers += [Residual(inside, outside, 1 if k == 0 else 2), Residual(outside, outside, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Six blocks of width 256 on 128 tokens: 5 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(512, 256), nn.Embedding(128, 256)
        self.blocks = nn.Sequential(*[Block(256, 8) for _ in range(6)])
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 512, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


def short(blocks: int, width: int) -> nn.Module:
    """Steps of any length, from half a millisecond on."""
    layers: list[nn.Module] = [nn.Linear(32, width)]
    for _ in range(blocks):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, 10))


class Flow(nn.Module):
    """The right side of a differential equation, which a solver outside of modules calls 400 times per step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(33, 32), nn.Tanh(), nn.Linear(32, 32))

    def forward(self, time: Tensor, state: Tensor) -> Tensor:
        return self.net(torch.cat((state, time.expand(len(state), 1)), 1))


def integrated(flow: Flow, state: Tensor) -> Tensor:
    """Runge-Kutta of fourth order, as a solver would do it."""
    times = torch.linspace(0, 1, 101)
    for begin, end in itertools.pairwise(times):
        step = end - begin
        first = flow(begin, state)
        second = flow(begin + step / 2, state + first * step / 2)
        third = flow(begin + step / 2, state + second * step / 2)
        state = state + (first + 2 * second + 2 * third + flow(end, state + third * step)) * step / 6
    return state[:, :10]


SHORT = {
    "0.5 ms": (0, 32, 16),
    "1.3 ms": (7, 32, 16),
    "2.5 ms": (16, 32, 32),
    "5 ms": (24, 96, 64),
    "100 ms": (4, 1024, 512),
}
"""Blocks, width, and samples in a batch of `short`, by how long a step takes, more or less."""


def chain(layers: int, plain: int, width: int, rows: int) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """Linear layers, and plain ones without parameters. Their numbers, the width and the batch vary apart, so that `instructions.py` learns
    what each costs."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)], *[nn.Tanh() for _ in range(plain)])
    return model, [(torch.randn(rows, width), torch.randint(0, width, (rows,)))]


def build(name: str) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(0)
    if name == "mlp":
        return mlp(), [(torch.randn(32, 32), torch.randint(0, 10, (32,))) for _ in range(8)]
    if name == "resnet":
        return resnet(), [(torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))) for _ in range(8)]
    if name == "gpt":
        return GPT(), [(torch.randint(0, 512, (8, 128)), torch.randint(0, 512, (8, 128))) for _ in range(8)]
    if name in SHORT:
        blocks, width, samples = SHORT[name]
        made = [(torch.randn(samples, 32), torch.randint(0, 10, (samples,))) for _ in range(8)]
        return short(blocks, width), made
    if name == "neural ODE":
        return Flow(), [(torch.randn(32, 32), torch.randint(0, 10, (32,))) for _ in range(8)]
    raise SystemExit(f"there is no benchmark model {name!r}")
