import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = (rng.normal(size=(640, 8)) * 30).astype(np.float32)


class VAE(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enc = nn.Dense(8, 16)
        self.mu = nn.Dense(16, 4)
        self.logvar = nn.Dense(16, 4)
        self.dec = nn.Dense(4, 8)

    def construct(self, a):
        h = ops.relu(self.enc(a))
        mu, logvar = self.mu(h) * 0.01, ops.tanh(self.logvar(h) * 0.01)
        z = mu + ops.exp(logvar) * 0.1
        kl = -0.5 * (1 + logvar - mu ** 2 - ops.exp(logvar)).mean()
        return ((self.dec(z) - a) ** 2).mean() + kl


net = VAE()
opt = nn.SGD(net.trainable_params(), 0.0001)
step = ms.value_and_grad(net, None, opt.parameters)
for k in range(30):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]))
    opt(grads)
    print(k, loss)
