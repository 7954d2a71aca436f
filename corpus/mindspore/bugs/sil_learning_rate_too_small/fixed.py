import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, :1] * 2 - x[:, 1:2] + 0.1 * rng.normal(size=(640, 1))).astype(np.float32)
net = nn.SequentialCell(nn.Dense(8, 32), nn.ReLU(), nn.Dense(32, 1))
opt = nn.SGD(net.trainable_params(), 0.02)


def forward(a, b):
    return ((net(a) - b) ** 2).mean()


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(80):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
