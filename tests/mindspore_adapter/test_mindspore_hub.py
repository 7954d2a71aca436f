"""A MindSpore training stopped from the browser's side: the hub, the agent and the same requests as for PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mindspore")
sys.path.append(str(Path(__file__).resolve().parent.parent / "hub"))

from hub_drive import Timeline, hub, training

from launch import Foundry

TRAINING = """
import os, sys
import numpy as np
import mindspore as ms
from mindspore import nn, Tensor

ms.set_seed(0)
rng = np.random.RandomState(0)
net = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 4))
net.set_train()
criterion = nn.CrossEntropyLoss()
optimizer = nn.SGD(net.trainable_params(), 0.05)

def forward(x, y):
    return criterion(net(x), y)

step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(int(sys.argv[1])):
    x, y = Tensor(rng.randn(32, 16).astype(np.float32)), Tensor(rng.randint(0, 4, 32).astype(np.int32))
    loss, grads = step(x, y)
    optimizer(grads)
    if os.path.exists(sys.argv[2]):
        break
"""


def test_pause_look_change_and_go_on(foundry: Foundry, tmp_path: Path) -> None:
    with (
        hub(tmp_path) as there,
        training(foundry, tmp_path, there.address.link, code=TRAINING) as run,
        there.client.live() as live,
    ):
        timeline = Timeline(live)
        place = timeline.follow(there.client, run.id)
        timeline.state("running")
        assert place.control("pause")["accepted"]
        step = timeline.type("stop")["stop"]["step"]
        tile = place.get("tensor", address="0:out", rows="0:2", cols="0:3", against="previous")
        assert (tile["shape"], tile["step"], len(tile["values"])) == ([32, 32], step - 1, 2)
        update = place.get("tensor", address="0.weight:update")
        assert any(value != 0 for row in update["values"] for value in row)
        place.control("step", count=2)
        assert timeline.type("stop")["stop"]["step"] == step + 2
        place.control("nextop")
        assert "/" in timeline.type("stop")["stop"]["site"]
        place.control("until", sites="2:grad")
        assert timeline.type("stop")["stop"]["site"] == "2:grad"
        point = place.post("breakpoints", sites="1:out")
        place.control("continue")
        assert timeline.type("stop")["stop"]["breakpoint"] == point["id"]
        graph = place.get("graph")
        assert {"0", "1", "2"} <= set(graph["scopes"]["name"])
        assert {"op", "parameter", "input", "loss"} == set(graph["nodes"]["kind"])
