"""A residual MLP."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(6)
rng = np.random.RandomState(6)


class Residual(nn.Cell):
    def __init__(self, width):
        self.norm = nn.LayerNorm((width,))
        self.fc = nn.Dense(width, width)

    def construct(self, x):
        return x + ops.relu(self.fc(self.norm(x)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(6, 24)
        self.blocks = nn.CellList([Residual(24) for _ in range(3)])
        self.leave = nn.Dense(24, 1)

    def construct(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


net = Net()
optimizer = nn.Adam(net.trainable_params(), 1e-3)
step = ms.value_and_grad(lambda x, y: ops.mse_loss(net(x), y), None, optimizer.parameters)
for k in range(60):
    x = rng.randn(32, 6).astype(np.float32)
    loss, grads = step(Tensor(x), Tensor(x[:, :1] * x[:, 1:2]))
    optimizer(grads)
    if k % 20 == 0:
        print(k, f"{float(loss):.4f}")
