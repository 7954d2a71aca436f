"""What the browser shows of a recording, at the terminal: findings, nodes with their neighbours, search, other steps and runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import cli

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    x, y = torch.randn(64, 8), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
LINES = """\
find kind:linear
findings
node 0
step
node 1/relu#0
find src:train.py:9 relu
step 3
diff 0:out step:1
diff 0:out step:3
diff 0:out run:first:3
diff 0 run:first:3
diff 0:out step:5
diff 2:out step:2
print 0:out


quit
y
"""


def test_the_terminal_knows_what_the_browser_shows(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    kept = cli("run", "-q", "--dump", "0:out", "--record", "first", "train.py", cwd=tmp_path)
    assert kept.code == 0, kept.err
    words = ("debug", "--dump", "0:out", "--record", "second", "train.py")
    said = cli(*words, cwd=tmp_path, stdin=LINES).err
    parts = said.split("(tensonde) ")
    found = {part.partition("\n")[0]: part.partition("\n")[2] for part in parts[1:]}
    assert [line.split() for line in found["find kind:linear"].splitlines()[:2]] == [["0", "Linear"], ["2", "Linear"]]
    assert "nothing wrong" in found["findings"]
    shown = found["node 0"]  # before the first step: what there is, with the initial weights
    assert "has  0.weight:value" in shown
    assert "known when the first step is over" in shown
    shown = found["node 1/relu#0"]
    assert "takes    0/linear#0:out" in shown
    assert "goes to  2/linear#0" in shown
    assert "relu" in found["find src:train.py:9 relu"]
    assert "elements changed (100.0%)" in found["diff 0:out step:1"]
    assert "0 of 4096 elements changed" in found["diff 0:out step:3"]
    for words in ("diff 0:out run:first:3", "diff 0 run:first:3"):
        assert "against step 3 of first: 0 of 4096 elements changed" in found[words]
    assert "against step 2: 256 of 256 elements changed" in found["diff 2:out step:2"]  # at hand, though not dumped
    assert "was not kept at step 5: it was at 0, 1, 2, 3" in found["diff 0:out step:5"]
    assert "an empty line shows its 64 rows, 20 at a time" in found["print 0:out"]
    pages = [part for part in parts if part.startswith("\n")]
    assert "[0]" in pages[0]
    assert "44 more rows" in pages[0]
    assert "[39]" in pages[1]


NESTED = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)
    def forward(self, x):
        return self.head(self.body(x))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    x, y = 5 + torch.randn(64, 8), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_a_module_is_all_that_is_in_it_and_a_buffer_is_as_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NESTED)
    lines = "step\nstats body.1.running_mean:value\nnode body\nstep 4\nstats body.1.running_mean:value\nquit\ny\n"
    said = cli("debug", "--record", "run", "train.py", cwd=tmp_path, stdin=lines).err
    _, step, first, node, _, later, *_ = (part.partition("\n")[2] for part in said.split("(tensonde) "))
    assert "end of step 0" in step
    after_one, after_five = (
        float(next(line.split()[1] for line in part.splitlines() if line.split()[:1] == ["max"]))
        for part in (first, later)
    )
    assert after_five > 3 * after_one > 0  # inputs are about 5, and each step moves it by a tenth of the way
    assert "goes to  head/linear#0" in node
    assert "body.2/relu#0:out" in node  # what it gives; not what goes on inside of it
    assert "goes to  body" not in node


def test_a_node_has_the_numbers_of_the_stop_where_they_are_at_hand(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NESTED)
    lines = "step\nuntil body.2/relu#0\nnode body.2/relu#0\nstats body.2/relu#0:out\nquit\ny\n"
    said = cli("debug", "--record", "run", "train.py", cwd=tmp_path, stdin=lines).err
    _, _, _, node, stats, *_ = (part.partition("\n")[2] for part in said.split("(tensonde) "))
    gives, goes = (next(line for line in node.splitlines() if word in line) for word in ("gives", "goes to"))
    assert gives.endswith("1, now"), node
    largest = next(line.split()[1] for line in stats.splitlines() if line.split()[:1] == ["max"])
    assert float(gives.split()[5]) == pytest.approx(float(largest), rel=1e-3)
    assert goes.split()[-1] == "0", node  # it has not run yet in this step
