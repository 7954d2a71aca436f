import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(9)
rng = np.random.default_rng(9)


class Deep(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enter = nn.Dense(8, 24)
        self.blocks = [nn.Dense(24, 24) for _ in range(3)]
        self.leave = nn.Dense(24, 1)

    def construct(self, x):
        x = ops.tanh(self.enter(x))
        for block in self.blocks:
            x = x + ops.tanh(block(x))
        return self.leave(x)


net = Deep()
opt = nn.Adam(net.trainable_params(), 0.003)
train = ms.value_and_grad(lambda a, b: ((net(a) - b) ** 2).mean(), None, opt.parameters)
for k in range(80):
    a = rng.normal(size=(32, 8)).astype(np.float32)
    loss, grads = train(Tensor(a), Tensor(np.sin(a.sum(1, keepdims=True))))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
