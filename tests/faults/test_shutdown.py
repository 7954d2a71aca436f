"""Tensonde prints nothing while the interpreter shuts down, whatever the program leaves behind and however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import cli, python

SCRIPT = """
import atexit, functools, os, sys, threading, types
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
X = torch.randn(16, 4)
held = []

def train(steps):
    for step in range(steps):
        out = net(X)
        loss = (out**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        held.append((out, loss, torch.ones(3) * step + 1))

train(6)
thread = threading.Thread(target=train, args=(2,))
thread.start()
thread.join()
out = net(X)
views = [out.sigmoid() + i for i in range(20)]  # in globals, made outside of modules
torch.kept, nn.kept, sys.kept = views[:5], net, views[5:10]  # in modules that live longer than Tensonde's
cache = types.ModuleType("cache")
sys.modules["cache"] = cache
cache.values = {"out": net(X) * 2, "net": net, "optimizer": optimizer}
cycle = [net(X) + 1]
cycle.append(cycle)
net.__dict__["owner"] = cycle  # in a cycle with the model

@functools.lru_cache
def cached(i):
    return net(X) + i

cached(1), cached(2)
atexit.register(lambda: held.append(net(X) + 1))
if os.fork() == 0:
    train(1)
    sys.exit(0)
os.wait()
"""
ENDS = {"normally": "", "sys.exit": "sys.exit(3)", "exception": 'raise ValueError("mine")'}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_printed_at_exit(end: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + ENDS[end] + "\n")
    bare = python(script, cwd=tmp_path)
    watched = cli("run", "--record", tmp_path / "recording", script, cwd=tmp_path, strict=False)
    assert (watched.code, watched.out) == (bare.code, bare.out)
    printed = watched.err.partition("tensonde: ")[0]  # what comes after it is the report
    assert printed.splitlines() == bare.err.splitlines()
    assert "ignored" not in watched.err
