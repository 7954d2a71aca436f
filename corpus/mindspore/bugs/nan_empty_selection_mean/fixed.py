import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (rng.random(640) < 0.3).astype(np.float32)
y[320:352] = 0
net = nn.SequentialCell(nn.Dense(8, 32), nn.ReLU(), nn.Dense(32, 1))
opt = nn.SGD(net.trainable_params(), 0.05)


def forward(a, b):
    score = net(a)[:, 0]
    lost = (score - 1) ** 2 * b
    return lost.sum() / ops.maximum(b.sum(), Tensor(1.0)) + 0.01 * (score ** 2).mean()


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(40):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
