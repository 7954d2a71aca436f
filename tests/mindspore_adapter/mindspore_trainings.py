"""Small MindSpore trainings in the ways that programs are written; each leaves its losses, weights and random numbers in RESULT.

Dropout passes all on: MindSpore's own on a CPU gives other masks in every run, so that a bare run does not repeat itself either.
"""

from __future__ import annotations

HEAD = """
import json, os
import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(3)
np.random.seed(3)
rng = np.random.RandomState(1)
data = rng.randn(64, 4).astype(np.float32)
labels = rng.randint(0, 3, 64).astype(np.int32)
losses = []

class Net(nn.Cell):
    def __init__(self, drop=0.0):
        super().__init__()
        self.fc1, self.norm, self.relu = nn.Dense(4, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.drop, self.fc2 = nn.Dropout(p=drop), nn.Dense(8, 3)

    def construct(self, x):
        return self.fc2(self.drop(self.relu(self.norm(self.fc1(x)))))

def leave(net):
    weights = {p.name: p.asnumpy().astype(np.float64).flatten().tolist() for p in net.get_parameters()}
    drawn = ops.standard_normal((3,)).asnumpy().tolist()
    json.dump({"losses": losses, "weights": weights, "random": drawn}, open(os.environ["RESULT"], "w"))
"""

FUNCTION = (
    HEAD
    + """
net = Net()
net.set_train()
criterion = nn.CrossEntropyLoss()
optimizer = nn.Adam(net.trainable_params(), 0.01)

def forward(x, y):
    return criterion(net(x), y)

step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(12):
    at = slice(k % 4 * 16, k % 4 * 16 + 16)
    loss, grads = step(Tensor(data[at]), Tensor(labels[at]))
    optimizer(grads)
    losses.append(float(loss))
leave(net)
"""
)

CELLS = (
    HEAD
    + """
net = Net()
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
step.set_train()
for k in range(12):
    at = slice(k % 4 * 16, k % 4 * 16 + 16)
    losses.append(float(step(Tensor(data[at]), Tensor(labels[at]))))
leave(net)
"""
)

MODEL = (
    HEAD
    + """
from mindspore import dataset as ds
from mindspore.train import Callback, Model

class Keep(Callback):
    def on_train_step_end(self, run_context):
        losses.append(float(run_context.original_args().net_outputs))

net = Net()
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
pipeline = ds.NumpySlicesDataset({"x": data, "y": labels}, shuffle=False).batch(16)
Model(net, nn.CrossEntropyLoss(), optimizer).train(3, pipeline, callbacks=[Keep()], dataset_sink_mode=False)
leave(net)
"""
)

JIT = (
    HEAD
    + """
net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
grad = ms.value_and_grad(lambda x, y: criterion(net(x), y), None, optimizer.parameters)

@ms.jit
def step(x, y):
    loss, grads = grad(x, y)
    optimizer(grads)
    return loss

for k in range(6):
    losses.append(float(step(Tensor(data[:16]), Tensor(labels[:16]))))
leave(net)
"""
).replace(
    "grad = ms.value_and_grad(lambda x, y: criterion(net(x), y), None, optimizer.parameters)",
    "def forward(x, y):\n    return criterion(net(x), y)\n\ngrad = ms.value_and_grad(forward, None, optimizer.parameters)",
)

GRAPH = CELLS.replace("ms.set_seed(3)", "ms.set_context(mode=ms.GRAPH_MODE)\nms.set_seed(3)")

SINK = MODEL.replace("ms.set_seed(3)", "ms.set_context(mode=ms.GRAPH_MODE)\nms.set_seed(3)").replace(
    "dataset_sink_mode=False", "dataset_sink_mode=True"
)

AWKWARD = GRAPH.replace("self.fc2(", "self.later(").replace(
    "net = Net()\n",
    """
class Low(nn.Cell):
    def construct(self, x):
        return x.astype(ms.bfloat16)

class Named(nn.Cell):
    def construct(self, x, scale=1.0):
        return {"out": x * scale}

class Later(nn.Cell):
    def __init__(self, fc2):
        super().__init__()
        self.parts = nn.SequentialCell(fc2, nn.Identity())
        self.low = Low()
        self.named = Named()

    def construct(self, x):
        return self.named(self.low(self.parts(x)).astype(ms.float32), scale=2.0)["out"]

net = Net()
net.later = Later(net.fc2)
""",
)
"""What no tap can look at: bfloat16, a dict. What takes its own way there: keywords, cells in a sequence."""

SPOILT = (
    FUNCTION.replace(
        "    return criterion(net(x), y)\n",
        "    calls.append(len(calls))\n    return criterion(net(x), y) + ops.log(bad)  # HERE\n",
    )
    .replace("for k in range(12):\n", "calls = []\nfor k in range(12):\n    bad = Tensor(-1.0 if k == 7 else 1.0)\n")
    .replace("leave(net)\n", "leave(net)\nassert calls == list(range(12)), calls\n")
)

PROGRAMS = {"function": FUNCTION, "cells": CELLS, "model": MODEL, "jit": JIT, "graph": GRAPH, "spoilt": SPOILT}
