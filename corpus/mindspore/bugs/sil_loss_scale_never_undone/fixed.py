import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(17)
rng = np.random.default_rng(17)
net = nn.SequentialCell(nn.Dense(6, 24), nn.Tanh(), nn.Dense(24, 1))
opt = nn.SGD(net.trainable_params(), 0.02)
SCALE = 1024.0
train = ms.value_and_grad(lambda a, b: ((net(a) - b) ** 2).mean() * SCALE, None, opt.parameters)
for k in range(60):
    a = rng.normal(size=(32, 6)).astype(np.float32)
    loss, grads = train(Tensor(a), Tensor(a[:, :1] - a[:, 2:3]))
    grads = tuple(g / SCALE for g in grads)
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
