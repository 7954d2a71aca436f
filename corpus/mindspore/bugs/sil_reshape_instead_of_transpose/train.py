import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(0)
rng = np.random.default_rng(0)
N, T, C = 480, 16, 4
y = rng.integers(0, C, N)
x = 0.9 * rng.normal(size=(N, T, C))
place = rng.integers(2, T - 2, N)
for i in range(N):
    x[i, place[i] - 1 : place[i] + 2, y[i]] += 2.2


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(C, 8, 3, pad_mode="same", has_bias=True)
        self.fc = nn.Dense(8, C)

    def construct(self, x):
        x = x.reshape(x.shape[0], x.shape[2], x.shape[1])
        return self.fc(ops.amax(ops.relu(self.conv(x)), -1))


net = Net()
opt = nn.Adam(net.trainable_params(), 0.01)
loss_fn = nn.CrossEntropyLoss()
train = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for epoch in range(6):
    order = rng.permutation(N)
    for k in range(0, N, 40):
        rows = order[k : k + 40]
        loss, grads = train(Tensor(x[rows].astype(np.float32)), Tensor(y[rows].astype(np.int32)))
        opt(grads)
    print(epoch, loss)
