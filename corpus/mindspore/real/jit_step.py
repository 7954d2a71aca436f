"""A training step under ms.jit, with a cell whose construct has control flow over static and tensor values."""

from fingerprint import report
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops


class Maxout(nn.Cell):
    def __init__(self, inner, outer, pieces):
        super().__init__()
        self.parts = nn.CellList([nn.Dense(inner, outer) for _ in range(pieces)])

    def construct(self, x):
        best = self.parts[0](x)
        for part in self.parts[1:]:
            best = ops.maximum(best, part(x))
        return best


net = nn.SequentialCell(Maxout(6, 16, 3), nn.Dense(16, 1))
net.set_train()
loss_fn = nn.MSELoss()
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.05, momentum=0.9)


def forward(x, y):
    loss = loss_fn(net(x), y)
    if loss > 10.0:
        loss = 10.0 + ops.log(loss - 9.0)
    return loss


grad_fn = ms.value_and_grad(forward, None, net.trainable_params())


@ms.jit
def train_step(x, y):
    loss, grads = grad_fn(x, y)
    optimizer(grads)
    return loss


data = np.random.randn(128, 6).astype(np.float32)
target = np.abs(data[:, :3]).sum(1, keepdims=True).astype(np.float32)
for step in range(30):
    at = step % 4 * 32
    loss = train_step(Tensor(data[at : at + 32]), Tensor(target[at : at + 32]))
    if step % 10 == 9:
        print(f"step {step} loss {float(loss.asnumpy()):.6f}")
report(net, optimizer)
