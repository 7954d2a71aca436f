import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(320, 40, 4)).astype(np.float32)
y = x.sum((1, 2), keepdims=True)[:, 0].astype(np.float32)


class Rnn(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inp = nn.Dense(4, 16)
        self.rec = nn.Dense(16, 16, weight_init=Tensor((rng.normal(size=(16, 16)) * 3).astype(np.float32)))
        self.out = nn.Dense(16, 1)

    def construct(self, t):
        h = ops.zeros((t.shape[0], 16))
        for i in range(t.shape[1]):
            h = self.inp(t[:, i]) + self.rec(h)
        return self.out(h)


net = Rnn()
opt = nn.SGD(net.trainable_params(), 0.01)
step = ms.value_and_grad(lambda a, b: ((net(a) - b) ** 2).mean(), None, opt.parameters)
for k in range(20):
    at = slice(k % 10 * 32, k % 10 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    print(k, loss)
