import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
x = rng.normal(size=(640, 8)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int32) + 2 * (x[:, 2] > 0).astype(np.int32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.Dense(8, 32)
        self.head = nn.Dense(32, 10)

    def construct(self, t):
        return self.head(ops.relu(self.body(t)))


net = Net()
net.head = nn.Dense(32, 4)
opt = nn.SGD(net.trainable_params(), 0.1)
loss_fn = nn.CrossEntropyLoss()


def forward(a, b):
    return loss_fn(net(a), b)


step = ms.value_and_grad(forward, None, opt.parameters)
for k in range(80):
    at = slice(k % 20 * 32, k % 20 * 32 + 32)
    loss, grads = step(Tensor(x[at]), Tensor(y[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
