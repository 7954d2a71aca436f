import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
x[320:352, 3] = 1.5
y = (x[:, :1] * 2 - x[:, 1:2]).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = nn.Dense(8, 16)
        self.b = nn.Dense(16, 1)

    def construct(self, t):
        t = (t - t.mean(0)) / (t.std(0) + 1e-5)
        return self.b(ops.relu(self.a(t)))


net = Net()
opt = nn.Adam(net.trainable_params(), 0.005)


def forward(a, b):
    return ((net(a) - b) ** 2).mean()


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(40):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
