import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(6)
rng = np.random.default_rng(6)
x = rng.normal(size=(400, 7)).astype(np.float32)
y = (np.abs(x[:, 0]) + x[:, 1] > 0.8).astype(np.int32) + (x[:, 2] > 1)
y = y.astype(np.int32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(7, 32), nn.ReLU(), nn.Dense(32, 3))

    def construct(self, x):
        return ops.log_softmax(self.body(x), axis=0)


net = Net()
loss_fn = nn.NLLLoss()
opt = nn.Adam(net.trainable_params(), 0.01)
train = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for k in range(60):
    rows = rng.integers(0, 400, 40)
    loss, grads = train(Tensor(x[rows]), Tensor(y[rows]))
    opt(grads)
    if k % 15 == 0:
        print(k, loss)
