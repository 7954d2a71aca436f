"""Every family of exceptions on a tiny training of its own: the rule, the line that must change, and what the finding
knows.

In the scripts, `# HERE` marks the line that the first finding must name.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

HEAD = """
import numpy as np, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
"""

LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CASES: dict[str, tuple[str, str]] = {}


def case(name: str, rule: str, *parts: str) -> None:
    CASES[name] = (rule, HEAD + "".join(textwrap.dedent(part) for part in parts))


case("linear in_features", "layer-input-size", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 8 * 8, 3)  # HERE
    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))
model = Net()
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))), batch_size=4)
""", LOOP)  # fmt: skip

case("an op that sparse tensors do not have", "op-not-on-device", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
    def forward(self, x):
        return self.fc(F.softplus(x.to_sparse()).to_dense())  # HERE
model = Net()
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(8, 6), torch.randint(0, 3, (8,))), batch_size=4)
""", LOOP)  # fmt: skip

case("reshape mixes samples", "layer-input-size", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 8 * 8, 3)
    def forward(self, x):
        x = self.conv(x).relu()
        x = x.reshape(-1, 4 * 8 * 4)  # HERE
        return self.fc(x)
model = Net()
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))), batch_size=4)
""", LOOP)  # fmt: skip

case("sequential in_features", "layer-input-size", """
model = nn.Sequential(
    nn.Linear(6, 16),
    nn.ReLU(),
    nn.Linear(32, 3),  # HERE
)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(8, 6), torch.randint(0, 3, (8,))), batch_size=4)
""", LOOP)  # fmt: skip

case("conv in_channels", "layer-input-size", """
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(3))  # HERE
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))), batch_size=4)
optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
for x, y in loader:
    loss = criterion(model(x), y)
""")  # fmt: skip

case("view with a constant batch", "shape-mismatch", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
    def forward(self, x):
        return self.fc(x.view(4, 6))  # HERE
model = Net()
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(10, 2, 3), torch.randint(0, 3, (10,))), batch_size=4)
""", LOOP)  # fmt: skip

case("view that changes the batch", "batch-size-changed", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
    def forward(self, x):
        x = x.reshape(-1, 6)  # HERE
        return self.fc(x)
model = Net()
loader = DataLoader(TensorDataset(torch.randn(8, 2, 6), torch.randint(0, 3, (8,))), batch_size=4)
def step(batch):
    x, y = batch
    out = model(x)
    return F.cross_entropy(out, y)
for batch in loader:
    step(batch).backward()
""")  # fmt: skip

case("residual of different widths", "shape-mismatch", """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 5)
    def forward(self, x):
        h = self.a(x)
        return x + h  # HERE
model = nn.Sequential(Block(), nn.Linear(6, 3))
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(8, 6), torch.randint(0, 3, (8,))), batch_size=4)
""", LOOP)  # fmt: skip

case("labels of a float array", "label-dtype", """
class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(12, 5)
    def __len__(self):
        return 12
    def __getitem__(self, i):
        row = self.rows[i]
        label = (row[-1] > 0).float()  # HERE
        return row[:-1], label
model = nn.Linear(4, 2)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Rows(), batch_size=4)
""", LOOP)  # fmt: skip

case("labels of a tensor data set", "label-dtype", """
xs = torch.randn(8, 4)
ys = (xs.sum(1) > 0).float()  # HERE
model = nn.Linear(4, 2)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(xs, ys), batch_size=4)
""", LOOP)  # fmt: skip

case("double input", "dtype-mismatch", """
data = np.random.rand(8, 4)
x = torch.from_numpy(data)  # HERE
y = torch.zeros(8, dtype=torch.long)
model = nn.Sequential(nn.Linear(4, 2))
for step in range(3):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
""")  # fmt: skip

case("embedding index", "index-out-of-range", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 4)  # HERE
        self.fc = nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(self.emb(x).mean(1))
model = Net()
tokens = torch.randint(0, 10, (6, 5))
tokens[2, 3] = 10
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(tokens, torch.zeros(6, dtype=torch.long)), batch_size=6)
""", LOOP)  # fmt: skip

case("index of a bag", "index-out-of-range", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(10, 4)  # HERE
        self.fc = nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(self.emb(x))
model = Net()
tokens = torch.randint(0, 10, (6, 5))
tokens[2, 3] = 10
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(tokens, torch.zeros(6, dtype=torch.long)), batch_size=6)
""", LOOP)  # fmt: skip

case("a class too many", "index-out-of-range", """
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))  # HERE
y = torch.tensor([0, 1, 2, 3, 0, 1])
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(6, 4), y), batch_size=6)
""", LOOP)  # fmt: skip

case("labels that count from one", "index-out-of-range", """
model = nn.Linear(4, 3)
y = torch.tensor([1, 2, 3, 1, 2, 3])  # HERE
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(6, 4), y), batch_size=6)
""", LOOP)  # fmt: skip

case("an in-place activation", "inplace-modification", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x):
        h = torch.exp(self.a(x))
        h[:, 0] = 0  # HERE
        return self.b(h)
model = Net()
x = torch.randn(8, 4)
for step in range(2):
    loss = model(x).mean()
    loss.backward()
""")  # fmt: skip

case("in place, called by a function that has returned", "inplace-modification", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x):
        h = torch.exp(self.a(x))
        h.clamp_(max=2)  # HERE
        return self.b(h)
class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
    def loss(self, batch):
        x, = batch
        return self.model(x).mean()
    def fit(self):
        for batch in self.loader:
            loss = self.loss(batch)
            loss.backward()
Trainer(Net(), DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)).fit()
""")  # fmt: skip

case("a last batch of one for a trainer", "batchnorm-batch-of-one", """
class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.loader = DataLoader(TensorDataset(torch.randn(9, 4)), batch_size=4)  # HERE
    def fit(self):
        for x, in self.loader:
            self.model(x)
Trainer().fit()
""")  # fmt: skip

case("a last batch for a table of full ones", "last-batch-smaller", """
model = nn.Linear(4, 3)
loader = DataLoader(TensorDataset(torch.randn(10, 4), torch.zeros(10, dtype=torch.long)), batch_size=4)  # HERE
table = torch.zeros(4, 4)
for x, y in loader:
    table[: len(x)] = x
    F.cross_entropy(model(table), y).backward()
""")  # fmt: skip

case("in place in the loop", "inplace-modification", """
model = nn.Linear(4, 4)
x = torch.randn(8, 4)
for step in range(2):
    out = torch.sigmoid(model(x))
    out *= 2  # HERE
    loss = out.mean()
    loss.backward()
""")  # fmt: skip

case("a step before the second backward", "inplace-modification", """
G, D = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
g_opt, d_opt = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
z = torch.randn(8, 4)
for step in range(2):
    fake = G(z)
    score = D(fake)
    d_loss = score.mean()
    g_loss = -score.mean()
    d_opt.zero_grad()
    d_loss.backward(retain_graph=True)
    d_opt.step()  # HERE
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
""")  # fmt: skip

case("two losses, one graph", "graph-used-twice", """
G, D = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
g_opt, d_opt = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
z = torch.randn(8, 4)
for step in range(2):
    fake = G(z)
    d_loss = D(fake).mean()  # HERE
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    g_loss = -D(fake).mean()
    g_loss.backward()
""")  # fmt: skip

case("a hidden state", "graph-used-twice", """
rnn, head = nn.GRU(3, 5, batch_first=True), nn.Linear(5, 1)
optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
h = torch.zeros(1, 4, 5)
for step in range(3):
    x = torch.randn(4, 6, 3)
    out, h = rnn(x, h)  # HERE
    loss = head(out).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")  # fmt: skip

case("a state kept by the module", "graph-used-twice", """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 5)
        self.state = None
    def forward(self, x):
        self.state = self.cell(x, self.state)  # HERE
        return self.state
model = Cell()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(4, 3)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")  # fmt: skip

case("computed once before the loop", "graph-used-twice", """
encoder, head = nn.Sequential(nn.Linear(3, 5), nn.Tanh()), nn.Linear(5, 1)
x = torch.randn(4, 3)
features = encoder(x)  # HERE
for step in range(3):
    loss = head(features).mean()
    loss.backward()
""")  # fmt: skip

case("a filter that matches nothing", "everything-frozen", """
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
for name, p in model.named_parameters():
    p.requires_grad_(name.startswith("head"))  # HERE
for step in range(2):
    loss = model(torch.randn(8, 4)).mean()
    loss.backward()
""")  # fmt: skip

case("no_grad around the forward", "loss-without-gradient", """
model = nn.Linear(4, 1)
x = torch.randn(8, 4)
for step in range(2):
    with torch.no_grad():  # HERE
        out = model(x)
    loss = out.mean()
    loss.backward()
""")  # fmt: skip

case("detached in the forward", "loss-without-gradient", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        h = self.a(x)
        return h.detach().sum(1)  # HERE
model = Net()
x = torch.randn(8, 4)
for step in range(2):
    loss = model(x).mean()
    loss.backward()
""")  # fmt: skip

case("argmax in the loss", "loss-without-gradient", """
model = nn.Linear(4, 3)
x, y = torch.randn(8, 4), torch.zeros(8)
for step in range(2):
    out = model(x)
    guess = out.argmax(1).float()  # HERE
    loss = F.mse_loss(guess, y)
    loss.backward()
""")  # fmt: skip

case("a last batch of one", "batchnorm-batch-of-one", """
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
criterion = nn.CrossEntropyLoss()
def make():
    return DataLoader(TensorDataset(torch.randn(9, 4), torch.zeros(9, dtype=torch.long)), batch_size=4)  # HERE
loader = make()
""", LOOP)  # fmt: skip

case("layers in a list", "optimizer-without-parameters", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 1)]  # HERE
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""")  # fmt: skip

case("a loss that is no scalar", "loss-not-scalar", """
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss(reduction="none")  # HERE
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.long)), batch_size=4)
""", LOOP)  # fmt: skip

case("a worker", "data-worker", """
class Rows(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(4), [0, 1][i]  # HERE
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Rows(), batch_size=4, num_workers=1)
model(torch.ones(1, 4))
""", LOOP)  # fmt: skip

case("items of different lengths", "uneven-items", """
class Rows(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(4 + i % 2), 0  # HERE
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Rows(), batch_size=4)
model(torch.ones(1, 4))
""", LOOP)  # fmt: skip

case("sequences without a collate_fn", "uneven-items", """
class Rows(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(4 + i), 0
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
rows = Rows()
padded = DataLoader(rows, batch_size=4, collate_fn=list)
loader = DataLoader(rows, batch_size=4)  # HERE
model(torch.ones(1, 4))
""", LOOP)  # fmt: skip

case("images of many sizes", "uneven-items", """
class Images(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(3, 4, 4 + i), 0  # HERE
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Images(), batch_size=4)
model(torch.ones(1, 4))
""", LOOP)  # fmt: skip

case("a constant on another device", "device-mismatch", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(4, device="meta")  # HERE
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        h = self.fc(x)
        return x * self.scale
model = Net()
model(torch.randn(2, 4))
""")  # fmt: skip

case("a gradient of the wrong shape", "backward-op", """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad.view(3, 5)  # HERE
model = nn.Linear(4, 4)
x = torch.randn(8, 4)
loss = Double.apply(model(x)).mean()
loss.backward()
""")  # fmt: skip

case("a checkpoint with a prefix", "checkpoint-mismatch", """
model = nn.Linear(4, 4)
state = {f"module.{k}": v for k, v in model.state_dict().items()}
model.load_state_dict(state)  # HERE
""")  # fmt: skip

case("no forward", "forward-missing", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def foward(self, x):
        return self.fc(x)
model = Net()
model(torch.randn(2, 4))  # HERE
""")  # fmt: skip

case("an activation built in place", "inplace-modification", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
        self.act = nn.ReLU(inplace=True)  # HERE
    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(self.act(h))
model = Net()
x = torch.randn(8, 4)
loss = model(x).mean()
loss.backward()
""")  # fmt: skip

case("classes in the last dimension", "class-dimension", """
model = nn.Linear(4, 7)
x, y = torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.long)
loss = F.cross_entropy(model(x), y)  # HERE
""")  # fmt: skip

case("a state for a constant batch", "state-batch-size", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.GRU(3, 5, batch_first=True), nn.Linear(5, 2)
    def forward(self, x):
        h0 = torch.zeros(1, 4, 5)  # HERE
        out, _ = self.rnn(x, h0)
        return self.fc(out[:, -1])
model = Net()
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(10, 6, 3), torch.zeros(10, dtype=torch.long)), batch_size=4)
""", LOOP)  # fmt: skip

case("poolings for a larger image", "feature-map-too-small", """
model = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.MaxPool2d(4),
    nn.Conv2d(4, 4, 3),  # HERE
)
model(torch.randn(2, 1, 8, 8))
""")  # fmt: skip

case("a view after a transpose", "view-of-strided", """
model = nn.Linear(4, 4)
x = model(torch.randn(2, 3, 4))
x.transpose(1, 2).view(2, -1)  # HERE
""")  # fmt: skip

case("initialised while recording", "inplace-on-leaf", """
model = nn.Linear(4, 4)
model(torch.randn(1, 4))
model.weight *= 0.1  # HERE
""")  # fmt: skip

case("an image without a batch", "input-dimensions", """
model = nn.Conv2d(1, 4, 3)
model(torch.randn(8, 8))  # HERE
""")  # fmt: skip

case("logits for probabilities", "probability-range", """
model = nn.Linear(4, 1)
x, y = torch.randn(8, 4) * 10, torch.ones(8, 1)
loss = F.binary_cross_entropy(model(x), y)  # HERE
""")  # fmt: skip

case("a device that is not there", "accelerator-missing", """
model = nn.Linear(4, 1)
model(torch.randn(2, 4))
model.to("cuda")  # HERE
""")  # fmt: skip

case("the result of an op", "optimizer-non-leaf", """
model = nn.Linear(4, 1)
model(torch.randn(2, 4))
scale = torch.ones(4, requires_grad=True) * 0.1  # HERE
optimizer = torch.optim.SGD([scale], lr=0.1)
""")  # fmt: skip

case("a double target", "backward-dtype", """
model = nn.Linear(4, 1)
x, y = torch.randn(8, 4), torch.ones(8, 1, dtype=torch.float64)
loss = F.huber_loss(model(x), y)  # HERE
loss.backward()
""")  # fmt: skip

case("a forward that counts", "checkpoint-recompute", """
from torch.utils.checkpoint import checkpoint
calls = []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def part(self, x):
        calls.append(1)
        x = torch.tanh(self.a(x))
        return x if len(calls) > 1 else torch.sigmoid(x) * x
    def forward(self, x):
        return checkpoint(self.part, x, use_reentrant=False)
model = Net()
loss = model(torch.randn(2, 4)).sum()
loss.backward()  # HERE
""")  # fmt: skip

SCALED = """
model = nn.Linear(4, 1)
x = torch.randn(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(3):
    loss = model(x).mean()
    optimizer.zero_grad()
"""

case("stepped past the scaler", "scaler-order", SCALED + """\
    scaler.scale(loss).backward()
    optimizer.step()  # HERE
    scaler.update()
""")  # fmt: skip

case("a loss that is not scaled", "scaler-order", SCALED + """\
    loss.backward()  # HERE
    scaler.step(optimizer)
    scaler.update()
""")  # fmt: skip

case("a scaler without update", "scaler-order", SCALED + """\
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # HERE
""")  # fmt: skip

case("double input of a loader made in the loop", "dtype-mismatch", """
class Points(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.from_numpy(np.random.rand(4)), i % 2  # HERE
model = nn.Sequential(nn.Linear(4, 2))
for x, y in DataLoader(Points(), batch_size=4):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
""")  # fmt: skip

case("a state beside the output, kept by the module", "graph-used-twice", """
class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 5, batch_first=True)
        self.state = None
    def forward(self, x):
        out, self.state = self.gru(x, self.state)  # HERE
        return out
model = Waves()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(4, 6, 3)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""")  # fmt: skip

case("a skip connection of another size", "shape-mismatch", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
    def forward(self, x):
        skip = self.down(x)
        h = F.max_pool2d(skip, 2)
        h = F.interpolate(h, scale_factor=2)  # HERE
        return torch.cat([skip, h], 1)
model = Net()
model(torch.randn(2, 1, 15, 15)).mean().backward()
""")  # fmt: skip

case("a tuple into a layer", "not-a-tensor", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5)
        self.out = nn.Linear(5, 1)
    def forward(self, x):
        h = self.lstm(x)  # HERE
        return self.out(h)
model = Net()
model(torch.randn(4, 2, 3)).mean().backward()
""")  # fmt: skip

case("a forward without return", "not-a-tensor", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 2)
    def forward(self, x):
        x = torch.relu(x)
        x = self.out(x)  # HERE
model = Net()
predicted = model(torch.randn(4, 3))
F.cross_entropy(predicted, torch.zeros(4, dtype=torch.long)).backward()
""")  # fmt: skip

case("an inference tensor", "inference-tensor", """
backbone, head = nn.Linear(3, 4), nn.Linear(4, 2)
with torch.inference_mode():  # HERE
    features = backbone(torch.randn(5, 3))
head(features).mean().backward()
""")  # fmt: skip

case("an optimizer's state with other groups", "optimizer-state-mismatch", """
model = nn.Linear(3, 2)
saved = torch.optim.Adam(model.parameters()).state_dict()
model(torch.randn(4, 3)).mean().backward()
optimizer = torch.optim.Adam([{"params": [p]} for p in model.parameters()])  # HERE
optimizer.load_state_dict(saved)
""")  # fmt: skip

case("outputs for probabilities", "probability-range", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 1)
    def forward(self, x):
        return self.out(x) * 9  # HERE
model = Net()
loss = nn.BCELoss()(model(torch.randn(40, 3)), torch.ones(40, 1))
loss.backward()
""")  # fmt: skip

case("a variable that is None for a reason of its own", "value-is-none", """
model = nn.Linear(4, 4)
model(torch.randn(2, 4))
found = {}.get("scale")
found.item()  # HERE
""")  # fmt: skip

case("a key that is not there", "missing-key", """
model = nn.Linear(4, 4)
model(torch.randn(2, 4))
scores = {}
scores["loss"]  # HERE
""")  # fmt: skip

case("items that are None", "item-is-none", """
class Items(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        if i == 5:
            return None  # HERE
        return torch.randn(4), 1
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(Items(), batch_size=4)
""", LOOP)  # fmt: skip

case("losses summed as numbers", "loss-is-a-number", """
model = nn.Linear(4, 3)
def criterion(out, y):
    total = 0.0
    for k in range(2):
        total += F.cross_entropy(out, y).item()  # HERE
    return total
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(0, 3, (8,))), batch_size=4)
""", LOOP)  # fmt: skip

case("gradient of an input without one", "input-without-gradient", """
model = nn.Linear(4, 1)
def penalty(a, b):
    mix = 0.5 * a + 0.5 * b  # HERE
    (slope,) = torch.autograd.grad(model(mix).sum(), mix, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()
penalty(torch.randn(8, 4), torch.randn(8, 4)).backward()
""")  # fmt: skip

case("parameters clamped before the backward pass", "inplace-modification", """
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
loss = model(torch.randn(8, 4)).mean()
with torch.no_grad():
    for p in model.parameters():
        p.clamp_(-0.1, 0.1)  # HERE
loss.backward()
""")  # fmt: skip

case("index from a float buffer", "index-dtype", """
class Buffer:
    def __init__(self):
        self.action = np.zeros(16, dtype=np.float32)
    def sample(self):
        action = torch.from_numpy(self.action[:8])  # HERE
        return torch.randn(8, 4), action
model = nn.Linear(4, 3)
state, action = Buffer().sample()
model(state).gather(1, action.unsqueeze(1)).mean().backward()
""")  # fmt: skip


def findings(foundry: Foundry, script: str, tmp_path: Path, **options: Any) -> list[Finding]:
    ran = foundry.watched(script, tmp_path, **options)
    assert ran.code == 1, ran.err
    assert "Traceback (most recent call last)" in ran.err
    assert ran.session.get("failures", {}) == {}
    return diagnose(ran.recording)


def marked(script: str) -> int:
    return next(k for k, line in enumerate(script.splitlines(), 1) if "# HERE" in line)


FUNCTION = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale
    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return (
            grad * scale,
            (grad * x).t(),  # HERE
        )
scale_by = Scale.apply
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 6), nn.Parameter(torch.ones(6))
    def forward(self, x):
        return scale_by(self.linear(x), self.scale)
model, criterion = Net(), F.mse_loss
loader = [(torch.randn(8, 4), torch.randn(8, 6))]
"""
case("own function, shape of a gradient", "own-gradient-wrong", FUNCTION, LOOP)
case(
    "optimizer state of another model",
    "optimizer-state-misfits",
    """
def train(width, state):
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    if state is not None:
        optimizer.load_state_dict(state)  # HERE
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()
train(16, train(8, None))
""",
)
case(
    "optimizer of one's own",
    "optimizer-step-failed",
    """
class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim == 1:
                    raise ValueError("not for vectors")  # HERE
model = nn.Linear(4, 1)
optimizer = Own(model.parameters())
model(torch.randn(8, 4)).sum().backward()
optimizer.step()
""",
)


@pytest.mark.parametrize("name", CASES)
def test_a_family_names_the_line(name: str, foundry: Foundry, tmp_path: Path) -> None:
    rule, script = CASES[name]
    found = findings(foundry, script, tmp_path)
    first = found[0]
    assert first.rule == rule, [(f.rule, f.title) for f in found]
    assert first.source is not None
    assert first.source.line == marked(script), (str(first.source), first.source.code, first.title)
    assert first.severity == "error"
    assert first.advice
    assert found[-1].rule == "exception"
    if rule != "exception":
        assert found[-1].caused_by == 0
