import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
np.random.seed(7)

rng = np.random.RandomState(1)


def mlp(i, o):
    return nn.SequentialCell(nn.Dense(i, 32), nn.LeakyReLU(0.2), nn.Dense(32, o))


G, D = mlp(4, 2), mlp(2, 1)
G.set_train()
D.set_train()
bce = nn.BCEWithLogitsLoss()
opt_g = nn.Adam(G.trainable_params(), 0.002, beta1=0.5)
opt_d = nn.Adam(D.trainable_params(), 0.002, beta1=0.5)


def d_loss(real, noise):
    fake = ops.stop_gradient(G(noise))
    return bce(D(real), ops.ones_like(D(real))) + bce(D(fake), ops.zeros_like(D(fake)))


def g_loss(noise):
    out = D(G(noise))
    return bce(out, ops.ones_like(out))


d_step = ms.value_and_grad(d_loss, None, opt_d.parameters)
g_step = ms.value_and_grad(g_loss, None, opt_g.parameters)
for k in range(60):
    real = Tensor((rng.randn(32, 2) * 0.3 + [1.0, -1.0]).astype(np.float32))
    noise = Tensor(rng.randn(32, 4).astype(np.float32))
    loss_d, grads = d_step(real, noise)
    opt_d(grads)
    loss_g, grads = g_step(noise)
    opt_g(grads)
    if k % 20 == 0:
        print(f"step {k} D {float(loss_d):.4f} G {float(loss_g):.4f}")
