"""A small training whose loss is given as lines of text; the line marked HERE is the one to be named."""

from __future__ import annotations

import textwrap
from pathlib import Path

from launch import Foundry, Ran
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

HEAD = """
import json, math, os, random
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
X = torch.rand(64, 8) + 0.1
Y = (X.sum(1) > 4.8).long()
"""

LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    i = torch.arange(16) + 16 * (step % 4)
    x, y = X[i].clone(), Y[i]
    bad = step == 7
    loss = compute(x, y, bad)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

MODEL = "model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))\n"


def script(body: str, *, model: str = MODEL, loop: str = LOOP) -> str:
    return HEAD + textwrap.dedent(model) + textwrap.dedent(body) + loop


def line_of(text: str, mark: str = "HERE") -> int:
    return next(k for k, line in enumerate(text.splitlines(), 1) if f"# {mark}" in line)


def findings(ran: Ran) -> list[Finding]:
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    return diagnose(ran.recording)


def problems(ran: Ran) -> list[Finding]:
    return [finding for finding in findings(ran) if finding.severity != "info"]


def run(foundry: Foundry, text: str, folder: Path, *, budget: float | None = 0.05) -> Ran:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(text)
    return foundry.watched(folder / "script.py", folder, budget=budget)
