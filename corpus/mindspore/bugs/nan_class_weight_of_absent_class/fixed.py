import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(320, 8)).astype(np.float32)
y = rng.integers(0, 3, 320).astype(np.int32)
counts = np.bincount(y, minlength=4).astype(np.float32)
weights = Tensor(counts.sum() / np.maximum(counts, 1))
net = nn.SequentialCell(nn.Dense(8, 32), nn.ReLU(), nn.Dense(32, 4))
opt = nn.SGD(net.trainable_params(), 0.05)


def forward(a, b):
    logp = ops.log_softmax(net(a), axis=-1)
    hot = ops.one_hot(b, 4, Tensor(1.0), Tensor(0.0))
    return -(hot * logp * weights).sum(-1).mean()


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(20):
    at = slice(k % 10 * 32, k % 10 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    print(k, loss)
