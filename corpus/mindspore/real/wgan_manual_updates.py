"""A WGAN whose updates are written by hand: GradOperation with sens, ParameterTuple, assign, weights clipped after each step."""

from fingerprint import report
import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

grad_by_list = ops.GradOperation(get_by_list=True, sens_param=True)


class RMSProp:
    """Not an optimizer of MindSpore's."""

    def __init__(self, params, rate):
        self.params, self.rate = ParameterTuple(params), rate
        self.squares = self.params.clone(prefix="square", init="zeros")

    def step(self, grads):
        for p, s, g in zip(self.params, self.squares, grads):
            ops.assign(s, 0.9 * s + 0.1 * g * g)
            ops.assign_sub(p, self.rate * g / (ops.sqrt(s) + 1e-8))


class Critic(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(2, 32), nn.LeakyReLU(0.2), nn.Dense(32, 1))

    def construct(self, x):
        return self.body(x)


class CriticLoss(nn.Cell):
    def __init__(self, generator, critic):
        super().__init__(auto_prefix=False)
        self.generator, self.critic = generator, critic

    def construct(self, real, z):
        return self.critic(ops.stop_gradient(self.generator(z))).mean() - self.critic(real).mean()


class GeneratorLoss(nn.Cell):
    def __init__(self, generator, critic):
        super().__init__(auto_prefix=False)
        self.generator, self.critic = generator, critic

    def construct(self, z):
        return -self.critic(self.generator(z)).mean()


generator = nn.SequentialCell(nn.Dense(4, 32), nn.ReLU(), nn.Dense(32, 2))
critic = Critic()
for prefix, cell in (("generator.", generator), ("critic.", critic)):
    cell.update_parameters_name(prefix)
critic_loss, generator_loss = CriticLoss(generator, critic), GeneratorLoss(generator, critic)
critic_opt, generator_opt = RMSProp(critic.trainable_params(), 2e-3), RMSProp(generator.trainable_params(), 2e-3)
one = Tensor(1.0, ms.float32)
for step in range(30):
    for _ in range(3):
        real = Tensor((np.random.randn(32, 2) * 0.2 + [1.0, -0.5]).astype(np.float32))
        z = Tensor(np.random.randn(32, 4).astype(np.float32))
        distance = critic_loss(real, z)
        critic_opt.step(grad_by_list(critic_loss, critic_opt.params)(real, z, one))
        for p in critic.trainable_params():
            p.set_data(ops.clamp(p, -0.1, 0.1))
    z = Tensor(np.random.randn(32, 4).astype(np.float32))
    generator_opt.step(grad_by_list(generator_loss, generator_opt.params)(z, one))
    if step % 10 == 0:
        print(f"step {step} distance {-float(distance):.6f}")
print(generator(Tensor(np.zeros((1, 4), np.float32))).shape)
report(generator, critic)
