import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)
data = rng.randn(640, 8).astype(np.float32)
labels = (data[:, 0] - 2 * data[:, 1]).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(8, 32)
        self.relu = nn.ReLU()
        self.fc2 = nn.Dense(32, 1)

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(x)))


net = Net()
net.set_train()
optimizer = nn.Adam(net.trainable_params(), 0.01)


def forward(x, y):
    return (net(x) - y).square().mean()


step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(60):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(data[at]), Tensor(labels[at]))
    optimizer(grads)
    if k % 20 == 0:
        print(f"step {k} loss {float(loss):.4f}")
