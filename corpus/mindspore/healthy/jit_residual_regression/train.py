import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(35)
rng = np.random.default_rng(35)
x = rng.uniform(-2, 2, (600, 2)).astype(np.float32)
y = (np.sin(x[:, :1]) * x[:, 1:]).astype(np.float32)


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm((width,))
        self.fc1 = nn.Dense(width, 2 * width)
        self.fc2 = nn.Dense(2 * width, width)
        self.act = nn.GELU()

    def construct(self, x):
        return x + self.fc2(self.act(self.fc1(self.norm(x))))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(2, 24)
        self.blocks = nn.CellList([Block(24) for _ in range(3)])
        self.leave = nn.Dense(24, 1)

    def construct(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


net = Net()
loss_fn = nn.SmoothL1Loss()
opt = nn.AdamWeightDecay(net.trainable_params(), 1e-3)


def forward(a, b):
    return loss_fn(net(a), b)


grad_fn = ms.value_and_grad(forward, None, opt.parameters)


@ms.jit
def train_step(a, b):
    loss, grads = grad_fn(a, b)
    opt(grads)
    return loss


net.set_train()
for epoch in range(4):
    for i in range(0, 600, 60):
        loss = train_step(Tensor(x[i : i + 60]), Tensor(y[i : i + 60]))
    print(epoch, loss)
