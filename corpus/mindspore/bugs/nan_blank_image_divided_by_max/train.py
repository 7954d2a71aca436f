import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
images = rng.random((320, 1, 8, 8)).astype(np.float32)
images[100] = 0
labels = rng.integers(0, 3, 320).astype(np.int32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.relu = nn.ReLU()
        self.fc = nn.Dense(256, 3)

    def construct(self, a):
        a = a / a.max(axis=(1, 2, 3), keepdims=True)
        return self.fc(self.relu(self.conv(a)).reshape(a.shape[0], -1))


net = Net()
loss_fn = nn.CrossEntropyLoss()
opt = nn.Momentum(net.trainable_params(), 0.05, 0.9)
step = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for k in range(20):
    at = slice(k % 20 * 16, k % 20 * 16 + 16)
    loss, grads = step(Tensor(images[at]), Tensor(labels[at]))
    opt(grads)
    print(k, loss)
