"""A GAN as MindSpore's tutorials write it: two TrainOneStep cells in one, two optimizers."""

from fingerprint import report
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
import mindspore as ms

LATENT = 8


class Generator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = nn.SequentialCell(nn.Dense(LATENT, 32), nn.LeakyReLU(0.2), nn.Dense(32, 2))

    def construct(self, z):
        return self.net(z)


class Discriminator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = nn.SequentialCell(nn.Dense(2, 32), nn.LeakyReLU(0.2), nn.Dense(32, 1), nn.Sigmoid())

    def construct(self, x):
        return self.net(x)


generator, discriminator = Generator(), Discriminator()
adversarial_loss = nn.BCELoss(reduction="mean")
optimizer_G = nn.Adam(generator.trainable_params(), learning_rate=1e-3, beta1=0.5)
optimizer_D = nn.Adam(discriminator.trainable_params(), learning_rate=1e-3, beta1=0.5)
optimizer_G.update_parameters_name("optim_g.")
optimizer_D.update_parameters_name("optim_d.")


def generator_forward(z, valid):
    fake = generator(z)
    return adversarial_loss(discriminator(fake), valid), fake


def discriminator_forward(real, fake, valid, wrong):
    real_loss = adversarial_loss(discriminator(real), valid)
    fake_loss = adversarial_loss(discriminator(fake), wrong)
    return (real_loss + fake_loss) / 2


grad_generator_fn = ms.value_and_grad(generator_forward, None, optimizer_G.parameters, has_aux=True)
grad_discriminator_fn = ms.value_and_grad(discriminator_forward, None, optimizer_D.parameters)

generator.set_train()
discriminator.set_train()
valid, wrong = ops.ones((32, 1), ms.float32), ops.zeros((32, 1), ms.float32)
for step in range(60):
    angle = np.random.uniform(0, 2 * np.pi, 32)
    real = Tensor(np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32))
    z = Tensor(np.random.randn(32, LATENT).astype(np.float32))
    (g_loss, fake), g_grads = grad_generator_fn(z, valid)
    optimizer_G(g_grads)
    d_loss, d_grads = grad_discriminator_fn(real, ops.stop_gradient(fake), valid, wrong)
    optimizer_D(d_grads)
    if step % 20 == 0:
        print(f"step {step} D {float(d_loss):.6f} G {float(g_loss):.6f}")
report(generator, discriminator, optimizer_G, optimizer_D)
