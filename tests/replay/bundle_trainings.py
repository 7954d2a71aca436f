"""Trainings of many kinds that go wrong in step 7 at the line marked HERE, and replaying them in another process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from launch import Foundry, Ran
from tensonde.session.options import Options
from tensonde.store.bundles import bundles_in
from tensonde.store.claim import create_run

HEAD = """
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(3)
BAD = 7
"""

CNN = """
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 4))

    def forward(self, x):
        return self.body(x)

model = Net().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(160, 3, 12, 12), torch.randint(0, 4, (160,))), 16, shuffle=True)
for step, (x, y) in enumerate(loader):
    x = x.contiguous(memory_format=torch.channels_last)
    p = F.dropout(model(x), 0.1).softmax(-1)
    if step == BAD:
        p = p * 0
    loss = F.nll_loss(p.log(), y)  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LSTM = """
embedding, lstm, head = nn.Embedding(30, 16), nn.LSTM(16, 16, num_layers=2, dropout=0.3), nn.Linear(16, 2)
optimizer = torch.optim.Adam([*embedding.parameters(), *lstm.parameters(), *head.parameters()])
for step in range(10):
    tokens = torch.randint(0, 30, (9, 8))
    lengths = torch.randint(1, 10, (8,)).sort(descending=True).values
    packed = nn.utils.rnn.pack_padded_sequence(embedding(tokens), lengths)
    _, (hidden, _) = lstm(packed)
    loss = F.cross_entropy(head(hidden[-1]), tokens[0] % 2)
    if step == BAD:
        loss = loss / (loss.detach() * 0)  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

STATEFUL = """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 8)

    def forward(self, x, state=None):
        out, state = self.lstm(x, state)
        return {"out": self.head(out), "state": state}

model = Recurrent()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
series, state = torch.randn(4, 200, 8), None
for step in range(10):
    x = series[:, step * 10 : step * 10 + 10]
    result = model(x, state=state)
    state = tuple(part.detach() for part in result["state"])
    loss = (result["out"] - x).square().mean()
    if step == BAD:
        loss = (loss * 0 - 1).sqrt()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

ATTENTION = """
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv, self.drop = nn.Linear(d, 3 * d), nn.Dropout(0.1)

    def forward(self, x, pad):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)).masked_fill(pad[:, None], float("-inf"))
        return self.drop(scores.softmax(-1)) @ v  # HERE

model, head = Attention(16), nn.Linear(16, 2)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
for step in range(10):
    x, pad = torch.randn(8, 6, 16), torch.zeros(8, 6, dtype=torch.bool)
    pad[:, 4:] = True
    if step == BAD:
        pad[3] = True
    loss = F.cross_entropy(head(model(x, pad)[:, 0]), (x[:, 0, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

BF16 = """
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    x = torch.randn(32, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
        loss = F.cross_entropy(out, x.argmax(1) % 4)
        if step == BAD:
            loss = loss.exp().mul(1e38).mul(1e38)  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

FP16 = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(10):
    x = torch.randn(16, 8)
    if step == BAD:
        x = x * 3e5
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)  # HERE
    loss = F.cross_entropy(out.float(), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

GAN = """
G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
D = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 1))
X = torch.randn(64, 8)
of_g, of_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
for step in range(10):
    real = D(X[:16])
    fake = G(torch.randn(16, 4))
    score = D(fake)
    if step == BAD:
        score = score * 0 - 200
    d_loss = torch.log(score.sigmoid()).mean() - real.mean()  # HERE
    of_d.zero_grad()
    d_loss.backward()
    of_d.step()
    of_g.zero_grad()
    g_loss = -D(G(torch.randn(16, 4))).mean()
    g_loss.backward()
    of_g.step()
"""

BACKWARD = """
class Distance(nn.Module):
    def forward(self, a, b):
        return (a - b).pow(2).sum(1).sqrt()  # HERE

model, distance = nn.Linear(8, 8), Distance()
scale = nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
for step in range(10):
    x = torch.randn(16, 8)
    y = model(x)
    loss = (scale * distance(y, model(x + (step != BAD)))).mean() + 1e-3 * model.weight.norm()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

COMPILED = """
model = torch.compile(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(16, 8)
    out = model(x)
    if step == BAD:
        out = (out * 0).log()  # HERE
    loss = F.cross_entropy(out, (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

ATTRIBUTES = """
from collections import namedtuple
from dataclasses import dataclass

Batch = namedtuple("Batch", "x y")

@dataclass
class Hint:
    weight: float
    shift: torch.Tensor

class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.frozen, self.tau, self.scale = nn.Linear(8, 2), nn.BatchNorm1d(8), 1.0, torch.ones(8)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, batch, hint):
        self.seen.add_(1)
        x = self.frozen(batch.x) * self.scale + hint.shift * hint.weight * self.seen
        return self.inner(x) / self.tau  # HERE

model = Annealed()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    model.tau = float(BAD - step)
    if step == 2:
        model.frozen.eval()
        model.scale = torch.full((8,), 2.0)
    batch = Batch(torch.randn(16, 8), torch.randint(0, 2, (16,)))
    loss = F.cross_entropy(model(batch, hint=Hint(0.5, torch.randn(8))), batch.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

METHODS = """
class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def loss(self, x, bad):
        for part in self.parts:
            x = x + torch.tanh(part(x))
        return torch.exp(x * (1e4 if bad else 1)).mean()  # HERE

flow = Flow()
optimizer = torch.optim.Adam(flow.parameters())
for step in range(10):
    loss = flow.loss(torch.randn(16, 4), step == BAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

KINDS = {
    "cnn": CNN, "lstm": LSTM, "stateful": STATEFUL, "attention": ATTENTION, "bf16": BF16, "fp16": FP16, "gan": GAN,
    "backward": BACKWARD, "compiled": COMPILED, "attributes": ATTRIBUTES, "methods": METHODS,
}  # fmt: skip


def train(foundry: Foundry, text: str, folder: Path, **options: Any) -> Ran:
    """The training, which leaves a bundle."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "script.py").write_text(HEAD + text)
    ran = foundry.watched(folder / "script.py", folder, budget=options.pop("budget", 0.05), **options)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    return ran


def elsewhere(ran: Ran, folder: Path) -> Path:
    """The bundle, copied with its script into another folder."""
    (bundle,) = bundles_in(ran.rank.folder)
    folder.mkdir()
    shutil.copy(ran.cwd / "script.py", folder)
    return Path(shutil.copytree(bundle, folder / "saved"))


def replayed(foundry: Foundry, bundle: Path, cwd: Path, *, script: Path | None = None) -> tuple[dict[str, Any], Ran]:
    """What the process that replays writes, and its recording."""
    folder = create_run(cwd, "replay", {"script": "script.py", "argv": []})
    options = Options(run=str(folder), budget=None, replay=str(bundle), quiet=True, bundle_bytes=0)
    ran = foundry.ran(script or cwd / "script.py", cwd, options, folder)
    path = folder / "replay.json"
    return json.loads(path.read_text()) if path.exists() else {}, ran
