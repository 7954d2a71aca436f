import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)
centers = rng.randn(4, 8).astype(np.float32)
labels = rng.randint(0, 4, 640).astype(np.int32)
data = centers[labels] + 0.5 * rng.randn(640, 8).astype(np.float32)


class Embedder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(8, 32)
        self.relu = nn.ReLU()
        self.fc2 = nn.Dense(32, 8)

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(x)))


net = Embedder()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 0.05)


def forward(a, b, same):
    squared = (net(a) - net(b)).square().sum(1)
    d = squared.sqrt()
    return (same * d.square() + (1 - same) * ops.clamp(1.0 - d, min=0).square()).mean()


step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(80):
    i, j = rng.randint(0, 640, 16), rng.randint(0, 640, 16)
    if k == 41:
        j[3] = i[3]
    same = (labels[i] == labels[j]).astype(np.float32)
    loss, grads = step(Tensor(data[i]), Tensor(data[j]), Tensor(same))
    optimizer(grads)
    print(f"step {k} loss {float(loss):.4f}")
