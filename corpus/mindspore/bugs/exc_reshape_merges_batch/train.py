import numpy as np
import mindspore as ms
from mindspore import nn, ops, Tensor

ms.set_seed(0)


class ConvNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, pad_mode="same")
        self.pool = nn.MaxPool2d(2, 2)
        self.fc = nn.Dense(8 * 8 * 8, 5)

    def construct(self, x):
        x = ops.relu(self.pool(self.conv(x)))
        x = x.reshape(-1, 8 * 8 * 4)
        return self.fc(x)


net = ConvNet()
loss_fn = nn.CrossEntropyLoss()
opt = nn.SGD(net.trainable_params(), learning_rate=0.05)
step = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, opt.parameters)
rng = np.random.default_rng(3)
for k in range(12):
    x = Tensor(rng.normal(size=(16, 3, 16, 16)).astype(np.float32))
    y = Tensor(rng.integers(0, 5, 16).astype(np.int32))
    loss, grads = step(x, y)
    opt(grads)
    print(k, loss)
