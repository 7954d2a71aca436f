"""Which loss callbacks and the recording show: the training's own, as its criterion gave it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from launch import Foundry
from tensonde.session.division import before_division, divided_by, divisions

COUNTING = """
import json, os, torch, tensonde
from torch import nn
from tensonde.train import LossMonitor

passes = []
original = torch.autograd.backward
def backward(tensors, *args, **kwargs):
    passes.append(float(tensors))
    return original(tensors, *args, **kwargs)
torch.autograd.backward = backward

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor, losses = LossMonitor(0), []
for x in tensonde.loop([torch.ones(2, 4)] * 5, monitor):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
json.dump([losses, monitor.losses, passes], open(os.environ["RESULT"], "w"))
"""


def test_passes_of_tensonde_are_nobodys(foundry: Foundry, tmp_path: Path) -> None:
    """The first step is the one in which Tensonde measures what its hooks cost."""
    ran = foundry.watched(COUNTING, tmp_path)
    losses, told, passes = ran.result
    assert told == losses
    assert passes == losses, "a wrapper of the user's sees the user's passes"
    assert [value for _, value in ran.scalars("loss")] == losses


ACCUMULATING = """
import json, os, sys, torch, tensonde
from torch import nn
from tensonde.train import LossMonitor

COUNT = 3
class Library:
    def backward(self, loss):
        loss = loss / COUNT
        (loss / 1).backward()

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor, losses = LossMonitor(0), []
def train():
    for k, x in enumerate(tensonde.loop(torch.randn(8, 2, 4).unbind(), monitor)):
        loss = model(x).square().mean()
        losses.append(loss.item())
        {how}
        if k % COUNT == COUNT - 1 or k == 7:
            optimizer.step()
            optimizer.zero_grad()
train()
json.dump([losses, monitor.losses], open(os.environ["RESULT"], "w"))
"""


@pytest.mark.parametrize(
    "how",
    [
        "Library().backward(loss)",
        "(loss * (1 / COUNT)).backward()",
        "kept = loss; loss = loss / COUNT; loss.backward()",
    ],
)
def test_the_loss_is_the_one_before_its_division(foundry: Foundry, tmp_path: Path, how: str) -> None:
    ran = foundry.watched(ACCUMULATING.replace("{how}", how), tmp_path)
    losses, told = ran.result
    assert told == losses, "callbacks"
    recorded = ran.scalars("loss")
    assert [step for step, _ in recorded] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert [value for _, value in recorded] == pytest.approx(losses, rel=1e-6), "also in the last step, which has fewer"


def test_a_mean_that_is_the_criterion_stays(foundry: Foundry, tmp_path: Path) -> None:
    """Two terms and their mean are no accumulation; nor are the losses of two models."""
    ran = foundry.watched(
        """
        import json, os, torch
        from torch import nn
        torch.manual_seed(0)
        models = [nn.Linear(4, 1) for _ in range(2)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
        losses = []
        for step in range(3):
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                loss = (model(torch.randn(2, 4)).square().mean() + model(torch.randn(2, 4)).abs().mean()) / 2
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        json.dump(losses, open(os.environ["RESULT"], "w"))
        """,
        tmp_path,
    )
    assert [value for _, value in ran.scalars("loss")] == ran.result


def test_what_a_graph_tells_of_a_division() -> None:
    x = torch.ones(3, requires_grad=True)
    loss = x.sum()
    assert [product for product, _ in divisions(loss / 4 / 1)] == [1, 4]
    assert [product for product, _ in divisions(0.25 * loss)] == [4]
    assert [product for product, _ in divisions((loss / 2).double())] == [1, 2]
    assert not list(divisions(loss * 3)), "a weight is no division"
    assert not list(divisions(loss / x.detach().norm())), "nor is a number that is not whole"
    assert not list(divisions(x.detach()))
    assert before_division(loss / 4, sys._getframe()) is loss
    assert divided_by([[2, 4], [2, 4]], 1) == 2
    assert divided_by([[4]], 4) == 4
    assert divided_by([[4], []], 4) == 1
    assert divided_by([], 4) == 1


def test_looking_into_frames_keeps_nothing_alive() -> None:
    import weakref

    def look() -> bool:
        held = torch.ones(2)
        loss = torch.ones(1, requires_grad=True).sum()
        before_division(loss / 2, sys._getframe())
        gone = weakref.ref(held)
        del held
        return gone() is None

    assert look()
