"""A memory-saving swish with its own bprop, in a deep MLP."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(51)
rng = np.random.RandomState(51)


class MemorySavingSwish(nn.Cell):
    def construct(self, x):
        return x * ops.sigmoid(x)

    def bprop(self, x, out, dout):
        s = ops.sigmoid(x)
        return (dout * (s + x * s * (1 - s)),)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(3):
            layers += [nn.Dense(24, 24), MemorySavingSwish()]
        self.stem = nn.Dense(8, 24)
        self.body = nn.SequentialCell(layers)
        self.head = nn.Dense(24, 1)

    def construct(self, x):
        return self.head(self.body(self.stem(x)))


net = Net()
optimizer = nn.Adam(net.trainable_params(), 2e-3)
loss_fn = nn.MSELoss()
step = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
net.set_train()
for i in range(120):
    x = rng.randn(64, 8).astype(np.float32)
    y = np.sin(2 * x[:, :1]) * x[:, 1:2] + x[:, 2:3] ** 2
    loss, grads = step(Tensor(x), Tensor(y.astype(np.float32)))
    optimizer(grads)
    if i % 20 == 0:
        print(i, f"{float(loss):.4f}")
