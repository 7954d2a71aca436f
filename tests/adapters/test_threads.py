"""Trainings in several threads: one is watched, and nothing of the others is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry

SCRIPT = """
import json, os, threading
import torch
from torch import nn

models = [nn.Linear(4, 1), nn.Linear(4, 1)]
made = {}
turn = [threading.Semaphore(1), threading.Semaphore(0)]
looked_at = []

def train(k):
    if AT == "in the thread":
        made[k] = torch.optim.SGD(models[k].parameters(), lr=0.1)
    for step in range(12):
        turn[k].acquire()
        made[k].zero_grad()
        models[k](torch.ones(2, 4)).sum().backward()
        made[k].step()
        if k == 0:
            from tensonde.adapters.torch.observers.origins import KNOWN
            looked_at.append([made[0] in KNOWN.mine(), made.get(1) in KNOWN.mine()])
        turn[1 - k].release()

if AT == "in the main thread":
    made = {k: torch.optim.SGD(models[k].parameters(), lr=0.1) for k in (0, 1)}
threads = [threading.Thread(target=train, args=(k,)) for k in (0, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
json.dump(looked_at, open(os.environ["RESULT"], "w"))
"""


@pytest.mark.parametrize("at", ["in the thread", "in the main thread"])
def test_gradients_of_another_thread_are_not_read(foundry: Foundry, tmp_path: Path, at: str) -> None:
    """Autograd writes them without the GIL: reading them meanwhile ended programs by SIGSEGV."""
    ran = foundry.watched(f"AT = {at!r}\n{SCRIPT}", tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    mine, theirs = zip(*ran.result[1:], strict=True)  # by then, the other thread has differentiated
    assert all(mine)
    assert not any(theirs)
