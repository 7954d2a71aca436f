import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
tokens = rng.integers(0, 16, (320, 9)).astype(np.int32)


class Lm(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 32)
        self.place = Parameter(Tensor(0.1 * rng.normal(size=(8, 32)).astype(np.float32)), name="place")
        self.q = nn.Dense(32, 32)
        self.k = nn.Dense(32, 32)
        self.v = nn.Dense(32, 32)
        self.head = nn.Dense(32, 16)

    def construct(self, t):
        h = self.table(t) + self.place
        scores = ops.matmul(self.q(h), self.k(h).swapaxes(1, 2)) / 32**0.5
        weights = ops.softmax(scores + Tensor(np.triu(np.full((8, 8), -1e9, np.float32), 1)), axis=-1)
        return self.head(h + ops.matmul(weights, self.v(h)))


net = Lm()
opt = nn.Adam(net.trainable_params(), 0.005)
loss_fn = nn.CrossEntropyLoss()
step = ms.value_and_grad(lambda a, b: loss_fn(net(a).reshape(-1, 16), b.reshape(-1)), None, opt.parameters)
for k in range(100):
    at = slice(k % 10 * 32, k % 10 * 32 + 32)
    loss, grads = step(Tensor(tokens[at, :-1]), Tensor(tokens[at, 1:]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
