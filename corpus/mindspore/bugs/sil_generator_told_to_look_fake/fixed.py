"""A GAN of two-dimensional points."""
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(10)
rng = np.random.RandomState(10)
BATCH, LATENT = 64, 6

generator = nn.SequentialCell(nn.Dense(LATENT, 32), nn.ReLU(), nn.Dense(32, 2))
discriminator = nn.SequentialCell(nn.Dense(2, 32), nn.LeakyReLU(0.2), nn.Dense(32, 1))
generator.update_parameters_name("generator.")
discriminator.update_parameters_name("discriminator.")
criterion = nn.BCEWithLogitsLoss()
optimizer_g = nn.Adam(generator.trainable_params(), 1e-3, beta1=0.5)
optimizer_d = nn.Adam(discriminator.trainable_params(), 1e-3, beta1=0.5)
real_label, fake_label = ops.ones((BATCH, 1), ms.float32), ops.zeros((BATCH, 1), ms.float32)


def generator_loss(z):
    fake = generator(z)
    return criterion(discriminator(fake), real_label), fake


def discriminator_loss(real, fake):
    return criterion(discriminator(real), real_label) + criterion(discriminator(fake), fake_label)


grad_g = ms.value_and_grad(generator_loss, None, optimizer_g.parameters, has_aux=True)
grad_d = ms.value_and_grad(discriminator_loss, None, optimizer_d.parameters)
for step in range(150):
    real = Tensor((rng.randn(BATCH, 2) * 0.3 + [2.0, -1.0]).astype(np.float32))
    (loss_g, fake), grads = grad_g(Tensor(rng.randn(BATCH, LATENT).astype(np.float32)))
    optimizer_g(grads)
    loss_d, grads = grad_d(real, ops.stop_gradient(fake))
    optimizer_d(grads)
    if step % 30 == 0:
        print(step, f"{float(loss_d):.4f} {float(loss_g):.4f}", fake.asnumpy().mean(0))
