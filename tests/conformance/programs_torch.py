"""The programs of the conformance suite in PyTorch. `frameworks.py` says what each must do."""

from __future__ import annotations

PRELUDE = """
import json, os
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
kept, losses = {}, []
step = 0

def keep(address, tensor):
    kept[f"{step} {address}"] = tensor.detach().numpy().copy()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)

    def forward(self, x):
        h = self.first(x)
        keep("first:out", h)
        if h.requires_grad:
            h.register_hook(lambda gradient: keep("first:grad", gradient))
        out = self.last(self.act(h))
        keep("last:out", out)
        return out

def batch(step):
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(5, 4, generator=generator), torch.randn(5, 3, generator=generator)

def leave(net):
    np.savez("kept.npz", **kept)
    weights = {name: p.detach().double().flatten().tolist() for name, p in net.named_parameters()}
    json.dump({"losses": losses, "weights": weights, "random": torch.rand(3).tolist()}, open(os.environ["RESULT"], "w"))
"""

TRAINING = """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(8):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = (net(x) - y).square().mean()
    keep("loss:value", loss)
    loss.backward()
    for name, p in net.named_parameters():
        keep(f"{name}:grad", p.grad)
        keep(f"{name}:value", p)
    optimizer.step()
    losses.append(loss.item())
leave(net)
"""

PROGRAMS = {
    "training": PRELUDE + TRAINING,
    "not a number": PRELUDE
    + """
class Bad(Net):
    def forward(self, x):
        return super().forward(x) + torch.log(x[:, :1].abs() - bad)  # HERE

net = Bad()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    bad = 100.0 if step == 5 else -1.0
    x, y = batch(step)
    optimizer.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
leave(net)
""",
    "exception": PRELUDE
    + """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = (net(x if step < 3 else x[:, :3]) - y).square().mean()  # HERE
    loss.backward()
    optimizer.step()
""",
    "evaluation": PRELUDE
    + """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        for other in range(3):
            net(batch(1000 + other)[0])
    net.train()
leave(net)
""",
    "accumulation": PRELUDE
    + """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    for part in range(3):
        x, y = batch(10 * step + part)
        loss = (net(x) - y).square().mean()
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
leave(net)
""",
    "questions": PRELUDE
    + """
import tensonde

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
answers = {}
for step in range(4):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    if step == 2:
        inspector = tensonde.api.current().inspector()
        answers["modules"] = [[node.name, node.type, node.parameters] for node in inspector.modules()]
        answers["optimizers"] = [node.type for node in inspector.optimizers()]
        answers["addresses"] = inspector.addresses()
        for address, tensor in (("first.weight:value", net.first.weight), ("last.bias:grad", net.last.bias.grad)):
            value = inspector.value(address)
            answers[address] = [value.dtype, list(value.shape), bool((value.array == tensor.detach().numpy()).all())]
        answers["slice"] = inspector.value("first.weight:value", index=(slice(0, 2), 1)).array.tolist()
        answers["slice of mine"] = net.first.weight[:2, 1].tolist()
        answers["shape"] = inspector.shape("first.weight:value")
        answers["said"] = inspector.assign("last.bias:value", (1,), 7.5)
        answers["assigned"] = net.last.bias.tolist()
        try:
            inspector.value("no.such:value")
        except tensonde.errors.UsageError as problem:
            answers["unknown"] = str(problem)
        answers["facts"] = inspector.facts()
    optimizer.step()
json.dump(answers, open(os.environ["RESULT"], "w"))
""",
    "sabotage": PRELUDE.replace("import json", "import tensonde, json")
    + TRAINING.replace(
        "    loss.backward()\n",
        """    loss.backward()
    training = tensonde.api.current()
    if step == 3 and training is not None:
        def broken(*args, **kwargs):
            raise ValueError("sabotage")
        training.session.writer.scalars = training.session.observe = training.session.site = broken
""",
    ),
}
