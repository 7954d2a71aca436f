import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(7)
rng = np.random.default_rng(7)


class MeanPool(nn.Cell):
    def construct(self, h, mask):
        total = (h * mask.expand_dims(-1)).sum(1)
        count = mask.sum(1, keepdims=True)
        return total / ops.maximum(count, Tensor(1.0))


class Bags(nn.Cell):
    def __init__(self):
        super().__init__()
        self.encoder = nn.SequentialCell(nn.Dense(6, 32), nn.ReLU())
        self.pool = MeanPool()
        self.head = nn.Dense(32, 3)

    def construct(self, x, mask):
        return self.head(self.pool(self.encoder(x), mask))


net = Bags()
opt = nn.Adam(net.trainable_params(), 0.005)
loss_fn = nn.CrossEntropyLoss()
train = ms.value_and_grad(lambda x, m, y: loss_fn(net(x, m), y), None, opt.parameters)
for k in range(50):
    y = rng.integers(0, 3, 32)
    x = rng.normal(size=(32, 8, 6)) + y[:, None, None]
    lengths = rng.integers(1, 9, 32)
    if k == 17:
        lengths[4] = 0
    mask = (np.arange(8)[None] < lengths[:, None]).astype(np.float32)
    loss, grads = train(Tensor(x.astype(np.float32)), Tensor(mask), Tensor(y.astype(np.int32)))
    opt(grads)
    if k % 10 == 0:
        print(k, loss)
