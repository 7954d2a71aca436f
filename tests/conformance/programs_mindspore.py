"""The programs of the conformance suite in MindSpore, PyNative mode. `frameworks.py` says what each must do."""

from __future__ import annotations

PRELUDE = """
import json, os
import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(0)
np.random.seed(0)
kept, losses = {}, []
step = 0
grads_of = {}

def keep(address, tensor):
    kept[f"{step} {address}"] = tensor.asnumpy().copy()

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 3)

    def construct(self, x):
        h = self.first(x)
        keep("first:out", h)
        if self.training:
            h.register_hook(lambda gradient: keep("first:grad", gradient))
        out = self.last(self.act(h))
        keep("last:out", out)
        return out

def batch(step):
    generator = np.random.RandomState(100 + step)
    return Tensor(generator.randn(5, 4).astype(np.float32)), Tensor(generator.randn(5, 3).astype(np.float32))

def leave(net):
    np.savez("kept.npz", **kept)
    weights = {p.name: p.asnumpy().astype(np.float64).flatten().tolist() for p in net.trainable_params()}
    drawn = ops.standard_normal((3,)).asnumpy().tolist()
    json.dump({"losses": losses, "weights": weights, "random": drawn}, open(os.environ["RESULT"], "w"))
"""

LOOP = """
def forward(x, y):
    return (net(x) - y).square().mean()

grad = ms.value_and_grad(forward, None, optimizer.parameters)
"""

TRAINING = (
    """
net = Net()
net.set_train()
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
"""
    + LOOP
    + """
for step in range(8):
    x, y = batch(step)
    loss, gradients = grad(x, y)
    keep("loss:value", loss)
    for p, g in zip(optimizer.parameters, gradients):
        keep(f"{p.name}:grad", g)
        keep(f"{p.name}:value", p)
    optimizer(gradients)
    losses.append(float(loss))
leave(net)
"""
)

PROGRAMS = {
    "training": PRELUDE + TRAINING,
    "not a number": PRELUDE
    + """
class Bad(Net):
    def construct(self, x):
        return super().construct(x) + ops.log(x[:, :1].abs() - bad)  # HERE

net = Bad()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 0.01)
"""
    + LOOP
    + """
for step in range(8):
    bad = 100.0 if step == 5 else -1.0
    x, y = batch(step)
    loss, gradients = grad(x, y)
    optimizer(gradients)
    losses.append(float(loss))
leave(net)
""",
    "exception": PRELUDE
    + """
net = Net()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 0.1)
"""
    + LOOP.replace("net(x)", "net(x if step < 3 else x[:, :3])").replace(".mean()\n", ".mean()  # HERE\n")
    + """
for step in range(8):
    x, y = batch(step)
    loss, gradients = grad(x, y)
    optimizer(gradients)
""",
    "evaluation": PRELUDE
    + """
net = Net()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 0.1)
"""
    + LOOP
    + """
for step in range(6):
    x, y = batch(step)
    loss, gradients = grad(x, y)
    optimizer(gradients)
    losses.append(float(loss))
    net.set_train(False)
    for other in range(3):
        net(batch(1000 + other)[0])
    net.set_train()
leave(net)
""",
    "accumulation": PRELUDE
    + """
net = Net()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 0.1)
"""
    + LOOP
    + """
for step in range(4):
    total = None
    for part in range(3):
        x, y = batch(10 * step + part)
        loss, gradients = grad(x, y)
        total = gradients if total is None else tuple(a + b for a, b in zip(total, gradients))
        losses.append(float(loss))
    optimizer(total)
leave(net)
""",
    "questions": PRELUDE
    + """
import tensonde

net = Net()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 0.1)
"""
    + LOOP
    + """
answers = {}
for step in range(4):
    x, y = batch(step)
    loss, gradients = grad(x, y)
    if step == 2:
        inspector = tensonde.api.current().inspector()
        answers["modules"] = [[node.name, node.type, node.parameters] for node in inspector.modules()]
        answers["optimizers"] = [node.type for node in inspector.optimizers()]
        answers["addresses"] = inspector.addresses()
        for address, tensor in (("first.weight:value", net.first.weight), ("last.bias:grad", gradients[3])):
            value = inspector.value(address)
            answers[address] = [value.dtype, list(value.shape), bool((value.array == tensor.asnumpy()).all())]
        answers["slice"] = inspector.value("first.weight:value", index=(slice(0, 2), 1)).array.tolist()
        answers["slice of mine"] = net.first.weight.asnumpy()[:2, 1].tolist()
        answers["shape"] = inspector.shape("first.weight:value")
        answers["said"] = inspector.assign("last.bias:value", (1,), 7.5)
        answers["assigned"] = net.last.bias.asnumpy().tolist()
        try:
            inspector.value("no.such:value")
        except tensonde.errors.UsageError as problem:
            answers["unknown"] = str(problem)
        answers["facts"] = inspector.facts()
    optimizer(gradients)
json.dump(answers, open(os.environ["RESULT"], "w"))
""",
    "sabotage": PRELUDE.replace("import json", "import tensonde, json")
    + TRAINING.replace(
        "    loss, gradients = grad(x, y)\n",
        """    loss, gradients = grad(x, y)
    training = tensonde.api.current()
    if step == 3 and training is not None:
        def broken(*args, **kwargs):
            raise ValueError("sabotage")
        training.session.writer.scalars = training.session.observe = training.session.site = broken
""",
    ),
}
