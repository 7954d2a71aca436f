import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)
centers = rng.randn(4, 8).astype(np.float32)
labels = rng.randint(0, 4, 640).astype(np.int32)
data = centers[labels] + 0.5 * rng.randn(640, 8).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(8, 32)
        self.relu = nn.ReLU()
        self.fc2 = nn.Dense(32, 4)

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(x)))


net = Net()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 2.0)


def forward(x, y):
    p = ops.softmax(net(x) * 60, axis=-1)
    picked = p.gather_elements(1, y.expand_dims(1).astype(ms.int64))
    return -ops.log(picked + 1e-6).mean()


step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(60):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(data[at]), Tensor(labels[at]))
    optimizer(grads)
    if k % 20 == 0:
        print(f"step {k} loss {float(loss):.4f}")
