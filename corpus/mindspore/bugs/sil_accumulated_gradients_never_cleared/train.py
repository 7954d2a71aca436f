"""Gradient accumulation as in MindSpore's tutorial, with a Cell that adds gradients up."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(111)
rng = np.random.RandomState(111)


class Accumulator:
    def __init__(self, optimizer, steps):
        self.optimizer, self.steps, self.count = optimizer, steps, 0
        self.sums = optimizer.parameters.clone(prefix="sum", init="zeros")

    def __call__(self, grads):
        for total, grad in zip(self.sums, grads):
            ops.assign_add(total, grad / self.steps)
        self.count += 1
        if self.count % self.steps == 0:
            self.optimizer(tuple(self.sums))
            self.clear()

    def clear(self):
        for total in self.sums:
            total = ops.zeros_like(total)


net = nn.SequentialCell(nn.Dense(10, 32), nn.ReLU(), nn.Dense(32, 1))
optimizer = nn.SGD(net.trainable_params(), 0.05)
accumulate = Accumulator(optimizer, 4)
loss_fn = nn.MSELoss()
step = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, net.trainable_params())
net.set_train()
for k in range(240):
    a = rng.randn(16, 10).astype(np.float32)
    b = (a[:, :1] - 0.5 * a[:, 4:5] + np.abs(a[:, 7:8])).astype(np.float32)
    loss, grads = step(Tensor(a), Tensor(b))
    accumulate(grads)
    if k % 40 == 39:
        print(k + 1, f"{float(loss):.4f}")
