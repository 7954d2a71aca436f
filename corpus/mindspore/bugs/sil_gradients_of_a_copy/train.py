import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(15)
rng = np.random.default_rng(15)


def make():
    return nn.SequentialCell(nn.Dense(5, 24), nn.ReLU(), nn.Dense(24, 1))


net, target = make(), make()
opt = nn.Adam(target.trainable_params(), 0.01)
train = ms.value_and_grad(lambda a, b: ((net(a) - b) ** 2).mean(), None, net.trainable_params())
for k in range(60):
    a = rng.normal(size=(32, 5)).astype(np.float32)
    loss, grads = train(Tensor(a), Tensor(a[:, :1] ** 2))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
