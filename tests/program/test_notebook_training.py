"""A training whose source is only in `linecache`, as a notebook's cells are, has the same facts as a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launch import Foundry

NAME = "<ipython-input-3-5c8a>"
CELL = """\
import torch
from torch import nn
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.images = torch.rand(32, 4) / 255.0
    def __len__(self):
        return 32
    def __getitem__(self, i):
        x = self.images[i]
        return x, i % 3
data = Data()
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
model[0].bias.requires_grad_(False)
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for group in optimizer.param_groups:
    group["lr"] = 0.05
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
optimizer.step()
"""
RUN = f"""
import linecache
cell = {CELL!r}
linecache.cache[{NAME!r}] = (len(cell), None, cell.splitlines(True), {NAME!r})
exec(compile(cell, {NAME!r}, "exec"), {{"__name__": "__main__"}})
"""


def test_facts_by_syntax_are_there_for_a_notebook(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(RUN, tmp_path)
    assert ran.code == 0, ran.err
    facts: dict[str, Any] = json.loads((ran.rank.folder / "facts.json").read_text())
    (loader,), (optimizer,) = facts["loaders"], facts["optimizers"]
    lines = {
        "freezes": facts["freezes"],
        "train_call": facts["train_call"],
        "rate": facts["rates_set"][0],
        "division": facts["divisions"][0]["line"],
        "loader": loader["made"],
        "optimizer": optimizer["made"],
    }
    assert {name: line["line"] for name, line in lines.items()} == {
        "freezes": 14,
        "train_call": 15,
        "rate": 18,
        "division": 5,
        "loader": 12,
        "optimizer": 16,
    }
    assert {line["file"] for line in lines.values()} == {NAME}
    assert lines["division"]["code"] == "self.images = torch.rand(32, 4) / 255.0"
    assert optimizer["steps_after_loop"]
