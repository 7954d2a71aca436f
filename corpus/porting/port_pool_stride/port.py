import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


def pictures():
    rng = np.random.default_rng(10)
    kinds = rng.normal(size=(4, 1, 12, 12))
    labels = rng.integers(0, 4, 128)
    return (kinds[labels] + 0.5 * rng.normal(size=(128, 1, 12, 12))).astype(np.float32), labels


class ConvNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(8, 16, 3, pad_mode="pad", padding=1, has_bias=True)
        self.fc = nn.Dense(16, 4)

    def construct(self, x):
        x = self.pool(ops.relu(self.conv1(x)))
        x = ops.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


ms.set_seed(5)
net = ConvNet()
optimizer = nn.Adam(net.trainable_params(), learning_rate=3e-3)
images, labels = pictures()
net.set_train()


def forward(x, y):
    return ops.cross_entropy(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
for epoch in range(3):
    for begin in range(0, 128, 16):
        loss, grads = step(Tensor(images[begin : begin + 16]), Tensor(labels[begin : begin + 16].astype(np.int32)))
        optimizer(grads)
    print(f"epoch {epoch} loss {float(loss):.4f}")
