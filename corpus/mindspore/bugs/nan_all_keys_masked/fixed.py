import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(8)
rng = np.random.default_rng(8)
PAD = 0
ids = rng.integers(1, 40, (200, 10)).astype(np.int32)
lengths = rng.integers(1, 11, 200)
lengths[137] = 1
for n, length in enumerate(lengths):
    ids[n, length:] = PAD
target = (ids.sum(1) % 3).astype(np.int32)


class Attend(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.q = nn.Dense(24, 24)
        self.k = nn.Dense(24, 24)
        self.v = nn.Dense(24, 24)
        self.out = nn.Dense(24, 3)

    def construct(self, ids):
        x = self.embed(ids)
        score = ops.matmul(self.q(x), self.k(x).swapaxes(1, 2)) / 24**0.5
        score = score.masked_fill((ids == PAD).expand_dims(1), float("-inf"))
        weight = ops.softmax(score, axis=-1)
        return self.out(ops.matmul(weight, self.v(x)).mean(1))


net = Attend()
net.set_train()
loss_fn = nn.CrossEntropyLoss()
opt = nn.Adam(net.trainable_params(), 1e-3)
grad_fn = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for epoch in range(2):
    for i in range(0, 200, 20):
        loss, grads = grad_fn(Tensor(ids[i : i + 20]), Tensor(target[i : i + 20]))
        opt(grads)
    print("epoch", epoch, float(loss))
