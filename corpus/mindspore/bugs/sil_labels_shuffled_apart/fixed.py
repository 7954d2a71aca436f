import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int32) + 2 * (x[:, 2] > 0).astype(np.int32)
order = rng.permutation(640)
x = x[order]
y = y[order]
net = nn.SequentialCell(nn.Dense(8, 32), nn.ReLU(), nn.Dense(32, 4))
opt = nn.Adam(net.trainable_params(), 0.01)
loss_fn = nn.CrossEntropyLoss()


def forward(a, b):
    return loss_fn(net(a), b)


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(120):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
