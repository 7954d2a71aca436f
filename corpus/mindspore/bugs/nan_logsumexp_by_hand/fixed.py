import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int32) + 2 * (x[:, 2] > 0).astype(np.int32)
x = x * 20
net = nn.SequentialCell(nn.Dense(8, 32), nn.ReLU(), nn.Dense(32, 4))
opt = nn.SGD(net.trainable_params(), 0.0005)


def forward(a, b):
    scores = net(a) * 10
    norm = ops.logsumexp(scores, -1)
    picked = scores.gather_elements(1, b.expand_dims(1).astype(ms.int64))[:, 0]
    return (norm - picked).mean()


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(40):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
