import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(33)
rng = np.random.default_rng(33)
base = rng.random((4, 30)) > 0.5
data = np.where(rng.random((512, 30)) < 0.95, base[rng.integers(0, 4, 512)], 1 - base[0]).astype(np.float32)


class VAE(nn.Cell):
    def __init__(self):
        super().__init__()
        self.encoder = nn.SequentialCell(nn.Dense(30, 40), nn.ReLU())
        self.mu = nn.Dense(40, 4)
        self.logvar = nn.Dense(40, 4)
        self.decoder = nn.SequentialCell(nn.Dense(4, 40), nn.ReLU(), nn.Dense(40, 30))

    def construct(self, x):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + ops.exp(0.5 * logvar) * ops.randn_like(mu)
        return self.decoder(z), mu, logvar


vae = VAE()
vae.set_train()
opt = nn.Adam(vae.trainable_params(), 2e-3)


def elbo(x):
    logits, mu, logvar = vae(x)
    recon = ops.binary_cross_entropy_with_logits(logits, x, ops.ones_like(x), ops.ones_like(x), reduction="sum") / x.shape[0]
    kl = -0.5 * (1 + logvar - mu * mu - ops.exp(logvar)).sum() / x.shape[0]
    return recon + kl


step = ms.value_and_grad(elbo, None, opt.parameters)
for epoch in range(5):
    order = rng.permutation(512)
    for i in range(0, 512, 64):
        loss, grads = step(Tensor(data[order[i : i + 64]]))
        opt(grads)
    print(epoch, float(loss))
