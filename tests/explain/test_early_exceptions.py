"""Errors as people make them around a training: before a module is called, in plain Python, in what is built or loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_exceptions import HEAD, findings, marked

from launch import Foundry

EARLY: dict[str, tuple[str, str, str]] = {
    "a key of the configuration": ("missing-key", "hidden", """
config = {"lr": 1e-3, "hidden": 32}
def build(cfg):
    return nn.Linear(8, cfg["hidden_size"])  # HERE
build(config)
"""),
    "a function without return": ("value-is-none", "Return the result", """
def read(path):
    torch.tensor([[1.0, 2.0]])  # HERE
data = read("x.csv")
data.mean()
"""),
    "rows of several lengths": ("tensor-of-lists", "pad_sequence", """
ids = torch.tensor([[1, 2, 3], [4, 5], [6]])  # HERE
"""),
    "no super().__init__()": ("layer-arguments", "super().__init__()", """
class Net(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(4, 2)  # HERE
Net()
"""),
    "a rate that is text": ("optimizer-arguments", "float(value)", """
torch.optim.Adam(nn.Linear(4, 3).parameters(), lr="1e-3")  # HERE
"""),
    "the model for its parameters": ("optimizer-arguments", "model.parameters()", """
torch.optim.Adam(nn.Linear(4, 3), lr=1e-3)  # HERE
"""),
    "the dictionary around the weights": ("checkpoint-mismatch", "checkpoint['model']", """
model = nn.Linear(4, 2)
saved = {"model": model.state_dict(), "epoch": 3}
model.load_state_dict(saved)  # HERE
"""),
    "an argument of forward": ("call-arguments", "(x, mask)", """
class Net(nn.Module):
    def forward(self, x, mask):
        return x * mask
net = Net()
net(torch.ones(3))  # HERE
"""),
    "a loader that gives nothing": ("never-assigned", "drop_last=False", """
model = nn.Linear(4, 2)
def train(loader):
    for x in loader:
        loss = model(x).mean()
    return loss
train(DataLoader(torch.randn(6, 4), batch_size=8, drop_last=True))  # HERE
"""),
    "a temperature of zero": ("value-not-finite", "temperature", """
model = nn.Linear(4, 5)
def sample(temperature):
    with torch.no_grad():
        logits = model(torch.ones(1, 4)) / temperature  # HERE
        p = F.softmax(logits, -1)
        return torch.multinomial(p, 1)
sample(0.0)
"""),
}  # fmt: skip
"""By name: the rule, a part of the advice, the program."""


@pytest.mark.parametrize("name", EARLY)
def test_what_to_change_is_said(name: str, foundry: Foundry, tmp_path: Path) -> None:
    rule, advice, program = EARLY[name]
    script = HEAD + program
    first = findings(foundry, script, tmp_path)[0]
    assert first.rule == rule, first
    assert first.source is not None
    assert first.source.line == marked(script), first
    assert advice in first.advice
