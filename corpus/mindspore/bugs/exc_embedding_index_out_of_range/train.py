import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)
data = rng.randint(0, 20, (640, 6)).astype(np.int32)
labels = (data.sum(1) % 3).astype(np.int32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(19, 8)
        self.fc = nn.Dense(8, 3)

    def construct(self, x):
        return self.fc(self.table(x).mean(1))


net = Net()
net.set_train()
criterion = nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)


def forward(x, y):
    return criterion(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
for k in range(60):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(data[at]), Tensor(labels[at]))
    optimizer(grads)
    if k % 20 == 0:
        print(f"step {k} loss {float(loss):.4f}")
