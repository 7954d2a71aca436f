"""What Tensonde costs on MindSpore: LeNet and a small GPT, bare and under `tensonde run`, in interleaved pairs of processes.

`.venv-mindspore/bin/python benchmarks/mindspore_overhead.py [--pairs 5] [--steps 400] [--model lenet|gpt] [--all]`; with `--all`, every tensor of every step is
looked at. Each process takes the processor time of its own steps, of all its threads, without the first tenth; a pair gives one ratio of means and one of medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """
import os, sys, time
import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(1)
rng = np.random.RandomState(1)
"""

LENET = """
class LeNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.pool, self.relu, self.flatten = nn.MaxPool2d(2, 2), nn.ReLU(), nn.Flatten()
        self.fc1, self.fc2, self.fc3 = nn.Dense(400, 120), nn.Dense(120, 84), nn.Dense(84, 10)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.flatten(self.pool(self.relu(self.conv2(x))))
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))

net = LeNet()
x, y = Tensor(rng.randn(32, 1, 32, 32).astype(np.float32)), Tensor(rng.randint(0, 10, 32).astype(np.int32))
"""

GPT = """
V, T, C = 256, 64, 128
mask = Tensor(np.triu(np.full((T, T), -1e9, np.float32), 1))

class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((C,)), nn.LayerNorm((C,))
        self.qkv, self.proj = nn.Dense(C, 3 * C), nn.Dense(C, C)
        self.up, self.down, self.gelu = nn.Dense(C, 4 * C), nn.Dense(4 * C, C), nn.GELU()

    def construct(self, x):
        q, k, v = ops.split(self.qkv(self.norm1(x)), C, axis=-1)
        w = ops.softmax(ops.matmul(q, k.swapaxes(1, 2)) / C**0.5 + mask, axis=-1)
        x = x + self.proj(ops.matmul(w, v))
        return x + self.down(self.gelu(self.up(self.norm2(x))))

class GPT(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tokens, self.head, self.norm = nn.Embedding(V, C), nn.Dense(C, V), nn.LayerNorm((C,))
        self.blocks = nn.SequentialCell(*[Block() for _ in range(4)])

    def construct(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x)))).reshape(-1, V)

net = GPT()
ids = rng.randint(0, V, (8, T + 1)).astype(np.int32)
x, y = Tensor(ids[:, :-1]), Tensor(ids[:, 1:].reshape(-1))
"""

LOOP = """
net.set_train()
criterion = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.001, 0.9)

def forward(x, y):
    return criterion(net(x), y)

step = ms.value_and_grad(forward, None, optimizer.parameters)
steps, taken = int(os.environ["STEPS"]), []
for k in range(steps):
    began = time.process_time()
    loss, grads = step(x, y)
    optimizer(grads)
    float(loss)
    taken.append(time.process_time() - began)
kept = taken[steps // 10 :]
print("TAKEN", sum(kept) / len(kept), sorted(kept)[len(kept) // 2])
"""
MODELS = {"lenet": LENET, "gpt": GPT}


def run(script: Path, steps: int, words: list[str]) -> tuple[float, float]:
    """Mean and median seconds of processor time of a step."""
    environment = {**os.environ, "STEPS": str(steps), "GLOG_v": "3"}
    done = subprocess.run(
        [sys.executable, *words, script.name], cwd=script.parent, env=environment, capture_output=True, text=True
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("TAKEN")), None)
    if line is None:
        sys.exit(done.stderr[-2000:])
    mean, median = line.split()[1:]
    return float(mean), float(median)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--model", choices=MODELS, default="lenet")
    parser.add_argument("--all", action="store_true", help="every tensor of every step")
    chosen = parser.parse_args()
    watched = ["-m", "tensonde", "run", "--quiet", *(["--budget", "off"] if chosen.all else [])]
    means, medians = [], []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(HEAD + MODELS[chosen.model] + LOOP)
        for k in range(chosen.pairs):
            order = [[], watched] if k % 2 == 0 else [watched, []]
            first, second = (run(script, chosen.steps, words) for words in order)
            bare, under = (first, second) if k % 2 == 0 else (second, first)
            means.append(under[0] / bare[0])
            medians.append(under[1] / bare[1])
            print(f"pair {k}: bare {bare[0] * 1e3:.2f} ms, watched {under[0] * 1e3:.2f} ms a step", flush=True)
    for name, found in (("mean", means), ("median", medians)):
        low, _, high = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else (found[0],) * 3
        print(f"{chosen.model}, ratio of {name}s: {statistics.median(found):.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
