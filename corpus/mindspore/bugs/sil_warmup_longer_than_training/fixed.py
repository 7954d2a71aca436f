import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(320, 12)).astype(np.float32)
y = (x[:, :3].sum(1) > 0).astype(np.int32)
STEPS = 60


class WarmUp(nn.learning_rate_schedule.LearningRateSchedule):
    def __init__(self, peak, steps):
        super().__init__()
        self.peak, self.steps = peak, steps

    def construct(self, step):
        return self.peak * ops.minimum((step.astype(ms.float32) + 1) / self.steps, Tensor(1.0))


net = nn.SequentialCell(nn.Dense(12, 32), nn.ReLU(), nn.Dense(32, 2))
opt = nn.SGD(net.trainable_params(), WarmUp(0.1, 10))
loss_fn = nn.CrossEntropyLoss()
train = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for k in range(STEPS):
    rows = rng.integers(0, 320, 32)
    loss, grads = train(Tensor(x[rows]), Tensor(y[rows]))
    opt(grads)
    if k % 15 == 0:
        print(k, loss)
