import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops


def images():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 240)
    pixels = rng.normal(0, 0.6, (240, 3, 12, 12)).astype(np.float32)
    for k, label in enumerate(labels):
        pixels[k, :, 3 * label : 3 * label + 3] += 1.0
    return pixels, labels


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, pad_mode="valid", has_bias=True)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, pad_mode="pad", padding=1, has_bias=True)
        self.act = nn.ReLU()
        self.fc = nn.Dense(16, 4)

    def construct(self, x):
        x = self.act(self.bn1(self.conv1(x)))
        x = self.act(self.conv2(x))
        return self.fc(x.mean((2, 3)))


ms.set_seed(0)
net = Net()
optimizer = nn.Momentum([{"params": net.trainable_params(), "weight_decay": 0.05}], learning_rate=0.1, momentum=0.9)
net.set_train()
loss_fn = nn.CrossEntropyLoss()


def forward(x, y):
    return loss_fn(net(x), y)


step = ms.value_and_grad(forward, None, optimizer.parameters)
pixels, labels = images()
for epoch in range(3):
    order = np.random.permutation(len(pixels))
    for begin in range(0, len(pixels), 40):
        chosen = order[begin : begin + 40]
        loss, grads = step(Tensor(pixels[chosen]), Tensor(labels[chosen].astype(np.int32)))
        optimizer(grads)
    print(f"epoch {epoch} loss {float(loss.asnumpy()):.4f}")
