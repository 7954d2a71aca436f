"""An exception that ends a program, or its training thread, is printed as without Tensonde; and deep programs go as deep."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

PROGRAM = """
import sys, threading
import torch
from torch import nn
torch.manual_seed(0)

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.late = nn.Linear(4, 4), False

    def forward(self, x):
        if self.late:
            fail()
        return self.fc(x)

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)

def train(steps=8):
    model = Outer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        model.inner.late = step == 6
        loss = model(torch.randn(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""
ENDS = {
    "in a module of a step that is not looked at": (
        "def fail():\n    raise ValueError('mine')\ntrain()\n",
        "ValueError",
    ),
    "in a group with others that were never raised": (
        "def fail():\n    raise BaseExceptionGroup('both', [KeyboardInterrupt(), ValueError('mine')])\ntrain()\n",
        "BaseExceptionGroup",
    ),
    "in the thread that trains": (
        "def fail():\n    raise ValueError('mine')\nthread = threading.Thread(target=train)\nthread.start()\nthread.join()\nprint('on')\n",
        "ValueError",
    ),
}


def printed(err: str) -> list[str]:
    return [line for line in err.splitlines() if "/launch.py" not in line and "runpy" not in line]


@pytest.mark.parametrize("name", ENDS)
def test_a_traceback_is_printed_as_without_tensonde(name: str, foundry: Foundry, tmp_path: Path) -> None:
    end, kind = ENDS[name]
    bare = foundry.bare(PROGRAM + end, tmp_path)
    ran = foundry.watched(PROGRAM + end, tmp_path, strict=False, budget=0.05)
    assert "_wrapped_call_impl" in bare.err
    assert (ran.code, ran.out) == (bare.code, bare.out)
    ours = [line for line in printed(ran.err) if "/tensonde/" not in line and "_main(_script)" not in line]
    theirs = [line for line in printed(bare.err) if "/tensonde/" not in line and "_main(_script)" not in line]
    assert ours == theirs
    assert any(kind in finding.title for finding in diagnose(ran.recording))


DEEP = """
import sys
import torch
from torch import nn
torch.manual_seed(0)


class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x, depth):
        return torch.tanh(self.cell(x if depth == 0 else self(x, depth - 1)))

def train(depth, steps=8):
    tree = Tree()
    optimizer = torch.optim.SGD(tree.parameters(), lr=0.01)
    for _ in range(steps):
        loss = tree(torch.randn(2, 4), depth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex(), sys.getrecursionlimit(), flush=True)

train(185)
sys.setrecursionlimit(1500)
train(280)
for wrong in (0, -1, 2**31, "many"):
    try:
        sys.setrecursionlimit(wrong)
    except Exception as problem:
        print(type(problem).__name__, problem)
"""


def test_modules_nest_as_deeply_as_without_tensonde(foundry: Foundry, tmp_path: Path) -> None:
    """Each level takes frames of ours: a hundred levels would be too many."""
    bare = foundry.bare(DEEP, tmp_path)
    assert bare.code == 0, bare.err[-2000:]
    for budget in (0.05, None):
        ran = foundry.watched(DEEP, tmp_path, budget=budget)
        assert (ran.code, ran.out) == (bare.code, bare.out), ran.err[-2000:]
        assert not [f for f in diagnose(ran.recording) if f.severity != "info"]


def test_recursion_without_end_still_ends(foundry: Foundry, tmp_path: Path) -> None:
    endless = DEEP.replace(
        "train(185)\n", "try:\n    train(10**9)\nexcept RecursionError as problem:\n    print(type(problem).__name__)\n"
    )
    bare, ran = foundry.bare(endless, tmp_path), foundry.watched(endless, tmp_path, strict=False)
    assert (ran.code, ran.out) == (bare.code, bare.out), ran.err[-2000:]
