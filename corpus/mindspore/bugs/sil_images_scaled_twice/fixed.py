import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor, Parameter
import mindspore.dataset as ds

ms.set_seed(3)
rng = np.random.default_rng(3)
images = rng.integers(0, 256, (320, 1, 8, 8)).astype(np.float32)
labels = (images[:, 0, :4].mean((1, 2)) > images[:, 0, 4:].mean((1, 2))).astype(np.int32)
images = images / 255


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Dense(256, 2)

    def construct(self, a):
        a = a - 0.5
        return self.fc(ops.relu(self.conv(a)).reshape(a.shape[0], -1))


net = Net()
opt = nn.SGD(net.trainable_params(), 0.05)
loss_fn = nn.CrossEntropyLoss()
step = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, opt.parameters)
for k in range(100):
    at = slice(k % 20 * 16, k % 20 * 16 + 16)
    loss, grads = step(Tensor(images[at]), Tensor(labels[at]))
    opt(grads)
    if k % 20 == 0:
        print(k, loss)
