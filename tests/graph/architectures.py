"""Trains one of four architectures compiled, and writes what came out: losses, weights, and what the compiler did.

python architectures.py ARCHITECTURE BACKEND static|dynamic [STEP]

In that STEP, the logarithm of a negative number is taken inside of the compiled code.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch._inductor.config.compile_threads = 1


class Convolutional(nn.Module):
    """Batch norm writes to its buffers; pooling gives two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.max_pool2d(F.relu(self.bn(self.conv(x))), 2).flatten(1))


class Attentive(nn.Module):
    """Softmax, layer norm, a residual, one module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm, self.out = nn.Linear(8, 24), nn.LayerNorm(8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
            x = x + self.out(torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1) @ v)
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    """A loop, an embedding, tanh and sigmoid; a state that is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(10, 6), nn.GRUCell(6, 6), nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen.add_(1)
        h = torch.zeros(len(tokens), 6)
        for t in range(3):
            h = self.cell(self.embed(tokens[:, t]), h)
        return self.head(h)


class Broken(nn.Module):
    """A graph break inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.first(x))
        torch._dynamo.graph_break()
        return self.second(h)


class Scaled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.inner(x) * torch.log(scale)


INPUTS = {
    "convolutional": (Convolutional, lambda n: torch.randn(n, 1, 8, 8)),
    "attentive": (Attentive, lambda n: torch.randn(n, 5, 8)),
    "recurrent": (Recurrent, lambda n: torch.randint(0, 10, (n, 3))),
    "broken": (Broken, lambda n: torch.randn(n, 6)),
}


def main(architecture: str, backend: str, shapes: str, bad: str = "") -> None:
    torch.manual_seed(0)
    kind, batch = INPUTS[architecture]
    model = Scaled(kind()) if bad else kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    call = model if backend == "none" else torch.compile(model, backend=backend, dynamic=shapes == "dynamic")
    losses = []
    for step, size in enumerate((6, 6, 4, 6) if shapes == "dynamic" else (6, 6, 6, 6)):
        x, y = batch(size), torch.randint(0, 3, (size,))
        optimizer.zero_grad()
        more = [torch.full((size, 1), -1.0 if step == int(bad) else 2.0)] if bad else []
        loss = F.cross_entropy(call(x, *more), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    counters = torch._dynamo.utils.counters
    weights = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in model.state_dict().values())).hexdigest()
    result = {
        "losses": losses,
        "weights": weights,
        "random": float(torch.rand(())),
        "compiler": {
            "stats": dict(counters["stats"]),
            "breaks": sum(counters["graph_break"].values()),
            "frames": dict(counters["frames"]),
        },
    }
    with open(os.environ["RESULT"], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
