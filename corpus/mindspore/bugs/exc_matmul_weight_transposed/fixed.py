import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, :1] * 2 - x[:, 1:2] + 0.1 * rng.normal(size=(640, 1))).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(rng.normal(size=(16, 8)).astype(np.float32)), name="w")
        self.out = nn.Dense(16, 1)

    def construct(self, t):
        return self.out(ops.tanh(ops.matmul(t, self.w.T)))


net = Net()
opt = nn.SGD(net.trainable_params(), 0.05)


def forward(a, b):
    return ((net(a) - b) ** 2).mean()


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(30):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
