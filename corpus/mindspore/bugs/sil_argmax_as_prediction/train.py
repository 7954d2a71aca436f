import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(3)
rng = np.random.default_rng(3)
features = rng.normal(size=(512, 12)).astype(np.float32)
scores = features @ rng.normal(size=(12, 5)).astype(np.float32)
grades = scores.argmax(1).astype(np.float32)


class Grader(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(12, 48), nn.ReLU(), nn.Dense(48, 48), nn.ReLU())
        self.head = nn.Dense(48, 5)

    def construct(self, x):
        logits = self.head(self.body(x))
        return ops.argmax(logits, dim=-1).astype(ms.float32)


net = Grader()
net.set_train()
mse = nn.MSELoss()
opt = nn.Adam(net.trainable_params(), learning_rate=2e-3)


def forward(x, y):
    return mse(net(x), y)


grad_fn = ms.value_and_grad(forward, None, opt.parameters)
for epoch in range(4):
    for i in range(0, 512, 64):
        loss, grads = grad_fn(Tensor(features[i : i + 64]), Tensor(grades[i : i + 64]))
        opt(grads)
    print("epoch", epoch, "loss", loss.asnumpy())
